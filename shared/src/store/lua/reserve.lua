#!lua
-- Keyed sends: the first caller stores which ids its send will use, everyone after gets them back.
-- KEYS    1 meta
-- ARGV    1 idempotency key, 2 digest of the request, 3 task, 4 turn, 5 context id, 6 how long to keep (ms)
-- DERIVES idem:<key>
-- RETURNS RESERVED now | EXISTS now task turn context created | CONFLICT
-- USES    base
local key = P .. 'idem:' .. ARGV[1]
local r = redis.call('HMGET', key, 'digest', 'task', 'turn', 'cid', 'cr')
if r[1] then
  if r[1] ~= ARGV[2] then
    return { 'CONFLICT' }
  end
  return { 'EXISTS', int(now), r[2], r[3], r[4], r[5] }
end
redis.call('HSET', key, 'digest', ARGV[2], 'task', ARGV[3], 'turn', ARGV[4], 'cid', ARGV[5], 'cr', int(now))
redis.call('PEXPIRE', key, ARGV[6])
return { 'RESERVED', int(now) }
