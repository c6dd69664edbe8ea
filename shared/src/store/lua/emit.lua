#!lua flags=allow-oom
-- Appends a batch of a running attempt, with its state and its snapshot.
-- KEYS    1 meta
-- ARGV    1 publish command, 2 context key, 3 epoch, 4 token, 5 turn, 6 task, 7 prev, 8 nonce, 9 stamp, 10 state,
--         11 '' | 'working' | 'boundary' (opens the attempt), 12 snapshot or '', 13 count, then pairs (event, kind)
-- DERIVES ctx:<ctx> task:<id> turn:<id> ev:<id> idx:* ch:<task>
-- RETURNS DONE last now repeat heard | FENCED | DIVERGED last | CANCELLED
-- USES    base index journal fence
local publish, ctx, epoch, token, turn, task, prev, nonce, stamp, state, open, snapshot = unpack(ARGV, 1, 12)
local answer, c, t = judge(ctx, epoch, token, turn, task, prev, nonce, tonumber(ARGV[13]))
if answer then
  return answer
end
if c[4] and c[4] ~= '' then
  return { 'CANCELLED' }
end

open_attempt(open, turn, task, t)
local last = append(task, prev, nonce, 13)
local task_key = P .. 'task:' .. task
if snapshot ~= '' then
  if not t[5] then
    -- The first snapshot inside a turn: keep the state at the turn's start for a boundary.
    local start = redis.call('HMGET', task_key, 'snap', 'snapc')
    redis.call('HSET', task_key, 'base', start[1] or '', 'basec', start[2] or '0-0')
  end
  redis.call('HSET', task_key, 'last', last, 'state', state, 'up', stamp, 'snap', snapshot, 'snapc', last)
else
  redis.call('HSET', task_key, 'last', last, 'state', state, 'up', stamp)
end
if state ~= t[2] then
  index(t[3], ctx, task, t[2], state, stamp)
end
local heard = announce(publish, task, prev, last, 13)
return { 'DONE', last, int(now), '', int(heard) }
