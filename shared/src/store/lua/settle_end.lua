#!lua flags=allow-oom
-- Ends a turn without its worker: recovery, a cancel nobody holds, a deadline, a hand-back that must not run again.
-- KEYS    1 meta
-- ARGV    1 publish command, 2-10 what the caller read (lib/expect.lua), 11 nonce, 12 stamp, 13 state, 14 snapshot,
--         15 class of the end, 16 trim journal below this id or '', 17-20 how long to keep task, context, journal
--         and turn (ms), 21 reason of the dead letter or '', 22 cap of the dead letters, 23 count of history items,
--         then the items, then count of events, then pairs (event, kind)
-- DERIVES ctx:<ctx> wait:<ctx> waiting turn:<id> task:<id> ev:<id> hist:<id> turns:* storages q:<scope> turns:dead due suspended retain idx:* ch:<task>
-- RETURNS OK last now, who takes the turn that waited and is queued now or '' | RETRY
-- USES    base run expect index journal storage wait promote place conclude release
local DEAD_BYTES = 4194304 -- of records as large as the last, per partition
local as_read, waits, suspended, storage = expected()
if not as_read then
  return { 'RETRY' }
end
local publish, ctx, turn, prev, task = ARGV[1], ARGV[2], ARGV[3], ARGV[7], ARGV[8]
local stamp, state = ARGV[12], ARGV[13]
local at = 24 + tonumber(ARGV[23])
local t = redis.call('HMGET', P .. 'task:' .. task, 'state', 'scope', 'base', 'hid')

if ARGV[21] ~= '' then
  local record = redis.call('HGET', P .. 'turn:' .. turn, 'r')
  if record then
    -- Large ones push out more: what somebody sends must not fill the memory, nor outlive its task for long.
    local letters, size = P .. 'turns:dead', #record
    redis.call('XADD', letters, '*', 't', turn, 'k', task, 'x', ctx, 'reason', ARGV[21], 'r', record)
    redis.call('XTRIM', letters, 'MINID', int(now - tonumber(ARGV[17])))
    redis.call('XTRIM', letters, 'MAXLEN', int(math.max(1, math.min(tonumber(ARGV[22]), math.floor(DEAD_BYTES / size)))))
    redis.call('PEXPIRE', letters, ARGV[17])
  end
end
if suspended then
  redis.call('ZREM', P .. 'suspended', turn)
end
local last = append(task, prev, ARGV[11], at)
local bell = release({
  ctx = ctx, turn = turn, task = task, class = ARGV[15], state = state,
  snapshot = ARGV[14], last = last, stamp = stamp, minid = ARGV[16], keep = 17, history = 23, base = t[3],
  waits = waits, storage = storage, hid = t[4], place = place_of(turn),
})
index(t[2], ctx, task, t[1], state, stamp)
announce(publish, task, prev, last, at)
return { 'OK', last, int(now), bell }
