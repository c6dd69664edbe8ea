#!lua flags=allow-oom
-- Rings a bell when memory is full; otherwise a plain ZADD does it.
-- KEYS    1 the bell of a pool
-- ARGV    pairs of Redis ms and partition
-- DERIVES
-- RETURNS RUNG
-- USES
redis.call('ZADD', KEYS[1], 'NX', unpack(ARGV))
return { 'RUNG' }
