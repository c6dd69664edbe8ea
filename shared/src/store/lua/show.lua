#!lua flags=allow-oom
-- Shows a task that nobody saw so far, and that was not answered without one: it is listed and found from now on.
-- KEYS    1 meta
-- ARGV    1 task, 2 '1' when the answer, if there is one, reached nobody: then it is shown, too
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
