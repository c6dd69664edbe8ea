#!lua flags=allow-oom
-- Gives a turn that nobody holds (or that its holder gives back) to another worker, or lets it wait.
-- KEYS    1 meta
-- ARGV    1 publish command (unused), 2-10 what the caller read (lib/expect.lua), 11 queue to join, `:first` or `:last` of the pool ('' = wait until 13),
--         12 '' | 'handback' | 'attempt' (what it costs), 13 Redis ms to look again
-- DERIVES ctx:<ctx> turn:<id> task:<id> turns:* storages due
-- RETURNS OK now, who takes it or '' | RETRY
-- USES    base storage side run expect
local as_read, _, _, storage = expected()
if not as_read then
  return { 'RETRY' }
end
local ctx, turn, queue, charge, at = ARGV[2], ARGV[3], ARGV[11], ARGV[12], ARGV[13]
local turn_key = P .. 'turn:' .. turn
local old = redis.call('HMGET', turn_key, 'e', 'q', 'ws')
if old[1] and old[1] ~= '' and old[2] and old[2] ~= '' then
  redis.call('XACK', P .. old[2], 'workers', old[1])
  redis.call('XDEL', P .. old[2], old[1])
end
local entry, bell = '', ''
if queue ~= '' then
  storage = old[3] and storage
  redis.call('HSET', KEYS[1], side(takers(home(queue, storage))), '1')
  entry, queue = enqueue(queue, storage, turn, ctx)
  bell = takers(queue)
  at = int(math.min(tonumber(at), now + left_alone(storage)))
end
redis.call('HSET', turn_key, 'e', entry, 'q', queue, 'begun', '')
if charge == 'attempt' then
  redis.call('HINCRBY', turn_key, 'charged', 1)
elseif charge == 'handback' then
  redis.call('HINCRBY', turn_key, 'handbacks', 1)
end
redis.call('HSET', P .. 'ctx:' .. ctx, 'tok', '', 'until', '0', 'at', queue == '' and at or '')
redis.call('ZADD', P .. 'due', at, ctx)
return { 'OK', int(now), bell }
