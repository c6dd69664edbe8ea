#!lua flags=allow-oom
-- Ends a turn without its worker: recovery, a cancel nobody holds, a deadline, a hand-back that must not run again.
-- KEYS    1 meta
-- ARGV    1 publish command, 2-9 what the caller read (lib/expect.lua), 10 nonce, 11 stamp, 12 state, 13 snapshot,
--         14 class of the end, 15 trim journal below this id or '', 16 keep task (ms), 17 keep context (ms),
--         18 keep turn (ms), 19 reason of the dead letter or '', 20 cap of the dead letters, 21 count of history items,
--         then the items, then count of events, then pairs (event, kind)
-- DERIVES ctx:<ctx> turn:<id> task:<id> ev:<id> hist:<id> turns:* turns:dead due retain idx:* ch:<task>
-- RETURNS OK last now | RETRY
-- USES    base run expect index journal release
if not expected() then
  return { 'RETRY' }
end
local publish, ctx, turn, prev, task = ARGV[1], ARGV[2], ARGV[3], ARGV[7], ARGV[8]
local stamp, state = ARGV[11], ARGV[12]
local at = 22 + tonumber(ARGV[21])
local t = redis.call('HMGET', P .. 'task:' .. task, 'state', 'scope', 'base')
local r = redis.call('HMGET', P .. 'turn:' .. turn, 'q', 'r')

if ARGV[19] ~= '' and r[2] then
  redis.call('XADD', P .. 'turns:dead', 'MAXLEN', '~', ARGV[20], '*', 't', turn, 'k', task, 'x', ctx, 'reason', ARGV[19],
    'r', r[2])
end
local last = append(task, prev, ARGV[10], at)
release({
  ctx = ctx, turn = turn, task = task, entry = ARGV[6], queue = r[1] or '', class = ARGV[14], state = state,
  snapshot = ARGV[13], last = last, stamp = stamp, minid = ARGV[15], keep_task = tonumber(ARGV[16]),
  keep_ctx = tonumber(ARGV[17]), keep_turn = ARGV[18], history = 21, base = t[3],
})
index(t[2], ctx, task, t[1], state, stamp)
announce(publish, task, prev, last, at)
return { 'OK', last, int(now) }
