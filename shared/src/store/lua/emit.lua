#!lua flags=allow-oom
-- Appends a batch of a running attempt, with its state, its snapshot and the session items that belong to it.
-- KEYS    1 meta
-- ARGV    1 publish command, 2 context key, 3 epoch, 4 token, 5 turn, 6 task, 7 prev, 8 nonce, 9 stamp, 10 state,
--         11 '' | 'working' | 'boundary' (opens the attempt), 12 snapshot or '', 13 time of the last status among the
--         events or '', 14 count, then pairs (event, kind), then the agent, the length that its session must have
--         ('' = any), count of session items, then the items
-- DERIVES ctx:<ctx> task:<id> turn:<id> ev:<id> sess:<ctx>:<agent> idx:* ch:<task>
-- RETURNS DONE last now repeat heard | FENCED | DIVERGED last | CANCELLED | SESSION length
-- USES    base index journal fence
local publish, ctx, epoch, token, turn, task, prev, nonce, stamp, state, open, snapshot, status = unpack(ARGV, 1, 13)
local answer, c, t = judge(ctx, epoch, token, turn, task, prev, nonce, tonumber(ARGV[14]))
if answer then
  return answer
end
if c[4] and c[4] ~= '' then
  return { 'CANCELLED' }
end

local events = tonumber(ARGV[14])
local at = 15 + 2 * events
local agent, expect, items = ARGV[at], ARGV[at + 1], tonumber(ARGV[at + 2])
local session = P .. 'sess:' .. ctx .. ':' .. agent
local turn_key = P .. 'turn:' .. turn
local alone = events == 0 and items > 0
if alone and redis.call('HGET', turn_key, 'sn') == nonce then
  return { 'DONE', prev, int(now), '1' } -- without events there is no entry to know a repeat by
end
if expect ~= '' then
  local length = redis.call('LLEN', session)
  if open == 'boundary' then
    length = math.min(length, length_at_start(turn_key)) -- what an earlier attempt appended goes in this very step
  end
  if length ~= tonumber(expect) then
    return { 'SESSION', length }
  end
end

if open ~= '' then
  redis.call('HINCRBY', turn_key, 'opened', 1)
end
if open == 'working' then
  redis.call('HSET', turn_key, 'begun', '1', 'slen', redis.call('LLEN', session))
elseif open == 'boundary' then
  redis.call('HSET', turn_key, 'begun', '1')
  take_back(turn_key, task, t, session)
end
local last = append(task, prev, nonce, 14)
for from = at + 3, at + 2 + items, 1000 do -- in pieces: Lua cannot unpack more than some thousand values
  redis.call('RPUSH', session, unpack(ARGV, from, math.min(from + 999, at + 2 + items)))
end
if items > 0 then
  redis.call('HSET', P .. 'ctx:' .. ctx, 's:' .. agent, '1')
end
if alone then
  redis.call('HSET', turn_key, 'sn', nonce)
end
local task_key = P .. 'task:' .. task
local fields = { 'last', last, 'state', state }
if status ~= '' or state ~= t[2] then
  status = status ~= '' and status or stamp
  fields = { 'last', last, 'state', state, 'up', status }
  if not t[6] then
    index(t[3], ctx, task, t[2], state, status)
  end
end
if snapshot ~= '' then
  if not t[5] then
    -- The first snapshot inside a turn: keep the state at the turn's start for a boundary.
    local start = redis.call('HMGET', task_key, 'snap', 'snapc')
    redis.call('HSET', task_key, 'base', start[1] or '', 'basec', start[2] or '0-0')
  end
  redis.call('HSET', task_key, 'snap', snapshot, 'snapc', last, unpack(fields))
else
  redis.call('HSET', task_key, unpack(fields))
end
local heard = events == 0 and 1 or announce(publish, task, prev, last, 14)
return { 'DONE', last, int(now), '', int(heard) }
