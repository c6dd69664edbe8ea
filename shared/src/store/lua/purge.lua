#!lua flags=allow-oom
-- Deletes a task or a context whose time has come, whole, unless a turn is live.
-- KEYS    1 meta
-- ARGV    1 publish command, 2 member of `retain` ('t:<task>' | 'c:<context>'), 3 how long a context with tasks is kept on (ms)
-- DERIVES retain task:<id> hist:<id> ev:<id> ctx:<ctx> idx:* ch:<task>
-- RETURNS PURGED | KEPT
-- USES    base
local member = ARGV[2]
local score = redis.call('ZSCORE', P .. 'retain', member)
if not score or tonumber(score) > now then
  return { 'KEPT' }
end
local id = string.sub(member, 3)
if string.sub(member, 1, 2) == 't:' then
  local t = redis.call('HMGET', P .. 'task:' .. id, 'live', 'scope', 'ctx', 'state')
  if t[1] and t[1] ~= '' then
    redis.call('ZREM', P .. 'retain', member)
    return { 'KEPT' }
  end
  redis.call('DEL', P .. 'task:' .. id, P .. 'hist:' .. id, P .. 'ev:' .. id)
  redis.call('ZREM', P .. 'retain', member)
  if t[2] then
    redis.call('ZREM', P .. 'idx:' .. t[2], id)
    redis.call('ZREM', P .. 'idx:' .. t[2] .. ':' .. t[4], id)
    redis.call('ZREM', P .. 'idx:ctx:' .. t[3], id)
  end
  redis.pcall(ARGV[1], P .. 'ch:' .. id, 'gone')
  return { 'PURGED' }
end
local live = redis.call('HGET', P .. 'ctx:' .. id, 'turn')
if live and live ~= '' then
  redis.call('ZREM', P .. 'retain', member)
  return { 'KEPT' }
end
if redis.call('EXISTS', P .. 'idx:ctx:' .. id) == 1 then
  redis.call('ZADD', P .. 'retain', int(now + tonumber(ARGV[3])), member)
  return { 'KEPT' }
end
redis.call('DEL', P .. 'ctx:' .. id)
redis.call('ZREM', P .. 'retain', member)
return { 'PURGED' }
