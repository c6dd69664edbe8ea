#!lua flags=allow-oom
-- Sets when a context must be looked at again, or forgets a context that has no live turn.
-- KEYS    1 meta
-- ARGV    1 context key, 2 turn as the caller read it ('' = none), 3 token as the caller read it, 4 Redis ms to look again
-- DERIVES ctx:<ctx> due
-- RETURNS OK | RETRY
-- USES    base
local ctx = ARGV[1]
local c = redis.call('HMGET', P .. 'ctx:' .. ctx, 'turn', 'tok')
if (c[1] or '') ~= ARGV[2] or (c[2] or '') ~= ARGV[3] then
  return { 'RETRY' }
end
if ARGV[2] == '' then
  redis.call('ZREM', P .. 'due', ctx)
else
  redis.call('ZADD', P .. 'due', ARGV[4], ctx)
end
return { 'OK' }
