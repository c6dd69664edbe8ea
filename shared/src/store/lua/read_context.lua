#!lua flags=no-writes
-- What is needed to judge a context: its fields, its live turn, where that turn stands, its task's last id.
-- KEYS    1 meta
-- ARGV    1 context key
-- DERIVES ctx:<ctx> turn:<id> task:<id> turns:*
-- RETURNS NONE now grace | CONTEXT now grace turn epoch token until cancel at worker, record, number, charged, handbacks,
--         opened, begun, entry, queue, first, task, last, waiting, since
-- USES    base queue
local meta = redis.call('HGET', KEYS[1], 'grace') or '0'
local c = redis.call('HMGET', P .. 'ctx:' .. ARGV[1], 'turn', 'ep', 'tok', 'until', 'cancel', 'at', 'wk')
if not c[1] or c[1] == '' then
  return { 'NONE', int(now), meta }
end
local r = redis.call('HMGET', P .. 'turn:' .. c[1], 'r', 'n', 'charged', 'handbacks', 'opened', 'begun', 'e', 'q', 'f', 'k', 'since')
local last = r[10] and redis.call('HGET', P .. 'task:' .. r[10], 'last') or ''
local waiting = ''
if r[7] and r[7] ~= '' and r[8] and r[8] ~= '' and (c[3] or '') == '' then
  -- It waits when its entry exists and the group has not come to it. An entry that the group passed over, because an
  -- operator made the group anew or moved it, is never delivered.
  if #redis.call('XRANGE', P .. r[8], r[7], r[7]) == 1 and comes_after(r[7], delivered(P .. r[8])) then
    waiting = '1'
  end
end
return { 'CONTEXT', int(now), meta, c[1], c[2] or '', c[3] or '', c[4] or '0', c[5] or '', c[6] or '', c[7] or '',
  r[1] or '', r[2] or '', r[3] or '0', r[4] or '0', r[5] or '0', r[6] or '', r[7] or '', r[8] or '', r[9] or '',
  r[10] or '', last or '', waiting, r[11] or '' }
