#!lua flags=allow-oom
-- Sets when a context must be looked at again. One that has no live turn is forgotten, unless turns wait: then the first is live.
-- KEYS    1 meta
-- ARGV    1 context key, 2-5 as the caller read them: turn ('' = none), epoch, token, entry, 6 Redis ms to look again
-- DERIVES ctx:<ctx> wait:<ctx> waiting turn:<id> turns:* storages due retain
-- RETURNS OK, who takes the turn that waited and is queued now or '' | RETRY
-- USES    base storage wait promote
local ctx = ARGV[1]
local c = redis.call('HMGET', P .. 'ctx:' .. ctx, 'turn', 'ep', 'tok', 'sto')
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
if ARGV[2] ~= '' then
  redis.call('ZADD', P .. 'due', ARGV[6], ctx)
  return { 'OK', '' }
end
local bell = promote(ctx, c[4])
if bell then
  redis.call('ZREM', P .. 'retain', 'c:' .. ctx)
else
  redis.call('ZREM', P .. 'due', ctx)
end
return { 'OK', bell or '' }
