#!lua flags=allow-oom
-- Ends a turn without its worker: recovery, a cancel nobody holds, a deadline, a hand-back that must not run again.
-- KEYS    1 meta
-- ARGV    1 publish command, 2-10 what the caller read (lib/expect.lua), 11 nonce, 12 stamp, 13 state, 14 snapshot,
--         15 class of the end, 16 trim journal below this id or '', 17 keep task (ms), 18 keep context (ms),
--         19 keep turn (ms), 20 reason of the dead letter or '', 21 cap of the dead letters, 22 count of history items,
--         then the items, then count of events, then pairs (event, kind)
-- DERIVES ctx:<ctx> turn:<id> task:<id> ev:<id> hist:<id> turns:* turns:dead due retain idx:* ch:<task>
-- RETURNS OK last now | RETRY
-- USES    base run expect index journal release
if not expected() then
  return { 'RETRY' }
end
local publish, ctx, turn, prev, task = ARGV[1], ARGV[2], ARGV[3], ARGV[7], ARGV[8]
local stamp, state = ARGV[12], ARGV[13]
local at = 23 + tonumber(ARGV[22])
local t = redis.call('HMGET', P .. 'task:' .. task, 'state', 'scope', 'base')
local r = redis.call('HMGET', P .. 'turn:' .. turn, 'q', 'r')

if ARGV[20] ~= '' and r[2] then
  redis.call('XADD', P .. 'turns:dead', 'MAXLEN', '~', ARGV[21], '*', 't', turn, 'k', task, 'x', ctx, 'reason', ARGV[20],
    'r', r[2])
end
local last = append(task, prev, ARGV[11], at)
release({
  ctx = ctx, turn = turn, task = task, entry = ARGV[6], queue = r[1] or '', class = ARGV[15], state = state,
  snapshot = ARGV[14], last = last, stamp = stamp, minid = ARGV[16], keep_task = tonumber(ARGV[17]),
  keep_ctx = tonumber(ARGV[18]), keep_turn = ARGV[19], history = 22, base = t[3],
})
index(t[2], ctx, task, t[1], state, stamp)
announce(publish, task, prev, last, at)
return { 'OK', last, int(now) }
