#!lua flags=allow-oom
-- Ties a context to the workspace of its first turn that named a good one, and to the storage where that is; later turns must name the same.
-- KEYS    1 meta
-- ARGV    1 context key, 2 epoch, 3 token, 4 turn, 5 workspace, 6 storage of the worker or ''
-- DERIVES ctx:<ctx>
-- RETURNS BOUND | OTHER | FENCED
-- USES    base
local key = P .. 'ctx:' .. ARGV[1]
local c = redis.call('HMGET', key, 'ep', 'tok', 'turn', 'ws')
if c[1] ~= ARGV[2] or c[2] ~= ARGV[3] or c[3] ~= ARGV[4] or ARGV[3] == '' then
  return { 'FENCED' }
end
if c[4] and c[4] ~= ARGV[5] then
  return { 'OTHER' }
end
if not c[4] then
  redis.call('HSET', key, 'ws', ARGV[5], unpack(ARGV[6] ~= '' and { 'sto', ARGV[6] } or {}))
end
return { 'BOUND' }
