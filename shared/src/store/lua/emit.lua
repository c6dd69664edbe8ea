#!lua flags=allow-oom
-- Appends a batch of a running attempt, with its state, its snapshot and the session items that belong to it.
-- KEYS    1 meta
-- ARGV    1 publish command, 2 context key, 3 epoch, 4 token, 5 turn, 6 task, 7 prev, 8 nonce, 9 stamp, 10 state,
--         11 '' | 'working' | 'boundary' (opens the attempt), 12 snapshot or '', 13 count, then pairs (event, kind),
--         then the agent, the length that its session must have, count of session items, then the items
-- DERIVES ctx:<ctx> task:<id> turn:<id> ev:<id> sess:<ctx>:<agent> idx:* ch:<task>
-- RETURNS DONE last now repeat heard | FENCED | DIVERGED last | CANCELLED | SESSION length
-- USES    base index journal fence
local publish, ctx, epoch, token, turn, task, prev, nonce, stamp, state, open, snapshot = unpack(ARGV, 1, 12)
local answer, c, t = judge(ctx, epoch, token, turn, task, prev, nonce, tonumber(ARGV[13]))
if answer then
  return answer
end
if c[4] and c[4] ~= '' then
  return { 'CANCELLED' }
end

local events = tonumber(ARGV[13])
local at = 14 + 2 * events
local agent, items = ARGV[at], tonumber(ARGV[at + 2])
local session = P .. 'sess:' .. ctx .. ':' .. agent
if items > 0 then
  local length = redis.call('LLEN', session)
  if events == 0 and length == tonumber(ARGV[at + 1]) + items then
    return { 'DONE', prev, int(now), '1' } -- only this attempt writes here: it was this very batch
  end
  if length ~= tonumber(ARGV[at + 1]) then
    return { 'SESSION', length }
  end
end

open_attempt(open, turn, task, t, session)
local last = append(task, prev, nonce, 13)
for from = at + 3, at + 2 + items, 1000 do -- in pieces: Lua cannot unpack more than some thousand values
  redis.call('RPUSH', session, unpack(ARGV, from, math.min(from + 999, at + 2 + items)))
end
if items > 0 then
  redis.call('HSET', P .. 'ctx:' .. ctx, 's:' .. agent, '1')
end
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
local heard = events == 0 and 1 or announce(publish, task, prev, last, 13)
return { 'DONE', last, int(now), '', int(heard) }
