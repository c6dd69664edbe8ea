#!lua flags=allow-oom
-- Rings the bell of a storage, which falls silent after an hour, or of a pool when memory is full; otherwise a plain ZADD does it.
-- KEYS    1 the bell of a pool, or of a pool and a storage
-- ARGV    pairs of Redis ms and partition
-- DERIVES
-- RETURNS RUNG
-- USES
redis.call('ZADD', KEYS[1], 'NX', unpack(ARGV))
if string.find(KEYS[1], '@', 1, true) then
  redis.call('PEXPIRE', KEYS[1], 3600000)
end
return { 'RUNG' }
