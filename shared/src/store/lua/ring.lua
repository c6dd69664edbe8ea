#!lua flags=allow-oom
-- Rings a bell when memory is full; otherwise a plain ZADD does it.
-- KEYS    1 the bell of a pool
-- ARGV    1 partition, 2 Redis ms
-- DERIVES
-- RETURNS RUNG
-- USES
redis.call('ZADD', KEYS[1], 'NX', ARGV[2], ARGV[1])
return { 'RUNG' }
