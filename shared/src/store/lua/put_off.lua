#!lua flags=allow-oom
-- Puts off what nobody can judge or delete, so that it does not stand before everything else of its partition.
-- KEYS    1 meta
-- ARGV    1 'due' | 'retain', 2 member, 3 for how long (ms)
-- DERIVES due retain
-- RETURNS OK | KEPT
-- USES    base
local key, member = ARGV[1] == 'due' and P .. 'due' or P .. 'retain', ARGV[2]
local score = redis.call('ZSCORE', key, member)
if not score or tonumber(score) > now then
  return { 'KEPT' } -- somebody could, since
end
redis.call('ZADD', key, int(now + tonumber(ARGV[3])), member)
return { 'OK' }
