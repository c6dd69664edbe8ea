#!lua flags=no-writes
-- A task in one look: fields, history, and the journal after its snapshot.
-- KEYS    1 meta
-- ARGV    1 task, 2 how many of the latest history items (-1 = all), 3 how many journal entries at the most
-- DERIVES task:<id> hist:<id> ev:<id>
-- RETURNS NONE now | TASK now scope ctx cid state last cr up n live k snap snapc base basec, history, entries, hid, agent
-- USES    base
local task = ARGV[1]
local t = redis.call('HMGET', P .. 'task:' .. task, 'scope', 'ctx', 'cid', 'state', 'last', 'cr', 'up', 'n', 'live', 'k',
  'snap', 'snapc', 'base', 'basec', 'hid', 'a')
if not t[1] then
  return { 'NONE', int(now) }
end
local history = {}
local want = tonumber(ARGV[2])
if want ~= 0 then
  history = redis.call('LRANGE', P .. 'hist:' .. task, want < 0 and 0 or -want, -1)
end
local entries = {}
if t[12] ~= t[5] then
  entries = redis.call('XRANGE', P .. 'ev:' .. task, t[12] or '-', '+', 'COUNT', ARGV[3])
end
return { 'TASK', int(now), t[1], t[2], t[3], t[4], t[5], t[6], t[7], t[8], t[9], t[10], t[11] or '', t[12] or '',
  t[13] or '', t[14] or '', history, entries, t[15] or '', t[16] or '' }
