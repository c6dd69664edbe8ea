#!lua flags=allow-oom
-- Sets when a context must be looked at again, or forgets a context that has no live turn.
-- KEYS    1 meta
-- ARGV    1 context key, 2-5 as the caller read them: turn ('' = none), epoch, token, entry, 6 Redis ms to look again
-- DERIVES ctx:<ctx> turn:<id> due
-- RETURNS OK | RETRY
-- USES    base
local ctx = ARGV[1]
local c = redis.call('HMGET', P .. 'ctx:' .. ctx, 'turn', 'ep', 'tok')
if (c[1] or '') ~= ARGV[2] then
  return { 'RETRY' }
end
-- Epoch and entry too: a turn that was given back meanwhile may wait for an earlier time.
if ARGV[2] ~= '' then
  local entry = redis.call('HGET', P .. 'turn:' .. ARGV[2], 'e')
  if (c[2] or '') ~= ARGV[3] or (c[3] or '') ~= ARGV[4] or (entry or '') ~= ARGV[5] then
    return { 'RETRY' }
  end
end
if ARGV[2] == '' then
  redis.call('ZREM', P .. 'due', ctx)
else
  redis.call('ZADD', P .. 'due', ARGV[6], ctx)
end
return { 'OK' }
