#!lua flags=allow-oom
-- The last batch of an attempt: its end event, the result, and everything that frees the context.
-- KEYS    1 meta
-- ARGV    1 publish command, 2 context key, 3 epoch, 4 token, 5 turn, 6 task, 7 prev, 8 nonce, 9 stamp, 10 state,
--         11 '' | 'working' | 'boundary' (opens the attempt), 12 snapshot, 13 class of the end ('i' | 't'),
--         14 '1' when the end is a cancel's, '2' when it is an answer without a task: nobody ever sees that one, if somebody hears it now, 15 trim journal below this id or '', 16-19 how long to keep task, context, journal
--         and turn (ms), 20 count of history items, then the items, then count of events, then pairs (event, kind), then
--         the agent, then what `take` said of its place: scope that it counts for or '', entry, queue
-- DERIVES ctx:<ctx> wait:<ctx> waiting task:<id> turn:<id> ev:<id> sess:<ctx>:<agent> hist:<id> turns:* storages q:<scope> due retain idx:* ch:<task>
-- RETURNS DONE last now repeat heard, who takes the turn that waited and is queued now or '' | FENCED | DIVERGED last | CANCELLED | SEEN
-- USES    base index journal fence storage wait promote conclude release
local publish, ctx, epoch, token, turn, task, prev, nonce, stamp, state, open, snapshot, class = unpack(ARGV, 1, 13)
local at = 21 + tonumber(ARGV[20])
local answer, c, t = judge(ctx, epoch, token, turn, task, prev, nonce, tonumber(ARGV[at]))
if answer then
  return answer
end
if c[4] and c[4] ~= '' and ARGV[14] ~= '1' then
  return { 'CANCELLED' }
end
if ARGV[14] == '2' and not t[6] then
  return { 'SEEN' } -- there is a task for clients: the turn ends as any other
end

if open == 'boundary' then -- what else an opening notes of the turn goes with the turn, in this very step
  take_back(P .. 'turn:' .. turn, task, t, P .. 'sess:' .. ctx .. ':' .. ARGV[at + 2 * tonumber(ARGV[at]) + 1])
end
local last = append(task, prev, nonce, at)
local place = at + 2 * tonumber(ARGV[at]) + 2
local bell = release({
  ctx = ctx, turn = turn, task = task, class = class, state = state,
  snapshot = snapshot, last = last, stamp = stamp, minid = ARGV[15], keep = 16, history = 20, base = t[5],
  waits = c[5], storage = c[6], hid = t[6], place = { ARGV[place], ARGV[place + 1], ARGV[place + 2] },
})
local heard, ears = announce(publish, task, prev, last, at)
if ARGV[14] == '2' and ears > 0 then
  redis.call('HSET', P .. 'task:' .. task, 'hid', '2')
else -- an answer that no gateway waits for would be lost: it is a task's
  index(t[3], ctx, task, t[2], state, stamp)
end
return { 'DONE', last, int(now), '', int(heard), bell }
