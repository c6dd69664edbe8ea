#!lua flags=allow-oom
-- The last batch of an attempt that needs its user: the turn stays the live one, and nobody holds it until it is answered.
-- KEYS    1 meta
-- ARGV    1 publish command, 2 context key, 3 epoch, 4 token, 5 turn, 6 task, 7 prev, 8 nonce, 9 stamp, 10 state,
--         11 '' | 'working' | 'boundary' (opens the attempt), 12 snapshot, 13 record of the turn from now on, 14 how long it
--         may wait (ms), 15 its deadline or '', 16 trim journal below this id or '', 17 count of history items, then the
--         items, then count of events, then pairs (event, kind), then the agent
-- DERIVES ctx:<ctx> task:<id> turn:<id> ev:<id> sess:<ctx>:<agent> hist:<id> turns:* due suspended idx:* ch:<task>
-- RETURNS DONE last now repeat heard | FENCED | DIVERGED last | CANCELLED
-- USES    base index journal fence
local publish, ctx, epoch, token, turn, task, prev, nonce, stamp, state, open, snapshot, record = unpack(ARGV, 1, 13)
local items = tonumber(ARGV[17])
local at = 18 + items
local answer, c, t = judge(ctx, epoch, token, turn, task, prev, nonce, tonumber(ARGV[at]))
if answer then
  return answer
end
if c[4] and c[4] ~= '' then
  return { 'CANCELLED' }
end

local turn_key, task_key = P .. 'turn:' .. turn, P .. 'task:' .. task
if open == 'boundary' then
  take_back(turn_key, task, t, P .. 'sess:' .. ctx .. ':' .. ARGV[at + 2 * tonumber(ARGV[at]) + 1])
end
local last = append(task, prev, nonce, at)
for from = 18, 17 + items, 1000 do -- in pieces: Lua cannot unpack more than some thousand values
  redis.call('RPUSH', P .. 'hist:' .. task, unpack(ARGV, from, math.min(from + 999, 17 + items)))
end
redis.call('HSET', task_key, 'last', last, 'state', state, 'up', stamp, 'k', 'i', 'snap', snapshot, 'snapc', last)
redis.call('HDEL', task_key, 'base', 'basec', 'hid')
if ARGV[16] ~= '' then
  redis.call('XTRIM', P .. 'ev:' .. task, 'MINID', ARGV[16])
end
local r = redis.call('HMGET', turn_key, 'e', 'q')
if r[1] and r[1] ~= '' then
  redis.call('XACK', P .. r[2], 'workers', r[1])
  redis.call('XDEL', P .. r[2], r[1])
end
-- What was said and remembered so far is no longer taken back: the next attempt begins here.
redis.call('HSET', turn_key, 'r', record, 'e', '', 'q', '', 'begun', '', 'opened', '0')
redis.call('HDEL', turn_key, 'slen')
local till = now + tonumber(ARGV[14])
redis.call('HSET', P .. 'ctx:' .. ctx, 'tok', '', 'until', '0', 'at', 's' .. int(till))
redis.call('ZADD', P .. 'suspended', int(now), turn)
redis.call('ZADD', P .. 'due', int(math.min(till, tonumber(ARGV[15]) or math.huge)), ctx)
index(t[3], ctx, task, t[2], state, stamp)
return { 'DONE', last, int(now), '', int(announce(publish, task, prev, last, at)) }
