#!lua flags=allow-oom
-- A refused send is not remembered: its key is free again, unless another send holds it by now.
-- KEYS    1 meta
-- ARGV    1 idempotency key, 2 turn
-- DERIVES idem:<key>
-- RETURNS OK | KEPT
-- USES    base
local key = P .. 'idem:' .. ARGV[1]
if redis.call('HGET', key, 'turn') ~= ARGV[2] then
  return { 'KEPT' }
end
redis.call('DEL', key)
return { 'OK' }
