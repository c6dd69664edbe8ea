#!lua flags=allow-oom
-- Shows a task that nobody saw so far: it is listed and found from now on. One that was answered without a task stays unseen, unless
-- the answer reached nobody.
-- KEYS    1 meta
-- ARGV    1 task, 2 '1' when whoever waited for the answer is gone
-- DERIVES task:<id> idx:*
-- RETURNS SHOWN | DIRECT | GONE
-- USES    base
local task = ARGV[1]
local t = redis.call('HMGET', P .. 'task:' .. task, 'hid', 'scope', 'ctx', 'state', 'up')
if not t[2] then
  return { 'GONE' }
elseif t[1] == '2' and ARGV[2] ~= '1' then
  return { 'DIRECT' }
end
if t[1] then
  redis.call('ZADD', P .. 'idx:' .. t[2], t[5], task)
  redis.call('ZADD', P .. 'idx:ctx:' .. t[3], t[5], task)
  redis.call('ZADD', P .. 'idx:' .. t[2] .. ':' .. t[4], t[5], task)
  redis.call('HDEL', P .. 'task:' .. task, 'hid')
end
return { 'SHOWN' }
