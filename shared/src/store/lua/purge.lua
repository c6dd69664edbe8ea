#!lua flags=allow-oom
-- Deletes a task, a context or a journal whose time has come, whole, unless a turn is live or waits.
-- KEYS    1 meta
-- ARGV    1 publish command, 2 member of `retain` ('t:<task>' | 'c:<context>' | 'j:<task>'), 3 how long a context with tasks is kept on (ms)
-- DERIVES retain due objects task:<id> hist:<id> ev:<id> ctx:<ctx> wait:<ctx> sess:<ctx>:<agent> idx:* ch:<task>
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
  redis.call('ZREM', P .. 'retain', member, 'j:' .. id)
  redis.call('ZADD', P .. 'objects', 'XX', int(now), id)
  if t[2] then
    redis.call('ZREM', P .. 'idx:' .. t[2], id)
    redis.call('ZREM', P .. 'idx:' .. t[2] .. ':' .. t[4], id)
    redis.call('ZREM', P .. 'idx:ctx:' .. t[3], id)
  end
  redis.pcall(ARGV[1], P .. 'ch:' .. id, 'gone')
  return { 'PURGED' }
end
if string.sub(member, 1, 2) == 'j:' then
  -- The snapshot holds the task. A task that may go on keeps its last entry, so that the next one has something to follow.
  local t = redis.call('HMGET', P .. 'task:' .. id, 'live', 'k', 'last', 'snapc')
  redis.call('ZREM', P .. 'retain', member)
  if not t[1] or t[1] ~= '' or t[3] ~= t[4] then
    return { 'KEPT' }
  elseif t[2] == 't' then
    redis.call('DEL', P .. 'ev:' .. id)
  else
    redis.call('XTRIM', P .. 'ev:' .. id, 'MINID', t[3])
  end
  return { 'PURGED' }
end
local live = redis.call('HGET', P .. 'ctx:' .. id, 'turn')
if live and live ~= '' then
  redis.call('ZREM', P .. 'retain', member)
  return { 'KEPT' }
end
if redis.call('EXISTS', P .. 'wait:' .. id) == 1 then
  redis.call('ZADD', P .. 'due', 'NX', int(now), id) -- its live turn was lost: whoever looks begins the next
  redis.call('ZREM', P .. 'retain', member)
  return { 'KEPT' }
end
if redis.call('EXISTS', P .. 'idx:ctx:' .. id) == 1 then
  redis.call('ZADD', P .. 'retain', int(now + tonumber(ARGV[3])), member)
  return { 'KEPT' }
end
for _, name in ipairs(redis.call('HKEYS', P .. 'ctx:' .. id)) do
  if string.sub(name, 1, 2) == 's:' then
    redis.call('DEL', P .. 'sess:' .. id .. ':' .. string.sub(name, 3))
  end
end
redis.call('DEL', P .. 'ctx:' .. id)
redis.call('ZREM', P .. 'retain', member)
return { 'PURGED' }
