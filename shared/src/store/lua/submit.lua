#!lua
-- Accepts a turn: turn record, history, first event, queue entry or place behind the live turn, due, indexes, in one step.
-- KEYS    1 meta
-- ARGV    1 publish command, 2 pool, 3 turn, 4 context key, 5 context id, 6 scope, 7 task, 8 record, 9 nonce,
--         10 prev ('' = the turn creates its task), 11 stamp, 12 state, 13 Redis ms at which it is worth nothing any more,
--         14 most turns of the scope in this partition (0 = any), 15 how many may wait behind the live turn, 16 how long it may
--         be queued then (ms), 17 its deadline or '', 18 live turn to interrupt or '', 19 '1' = nobody sees the
--         task until something shows it, 20 agent, 21 '1' = it works in its context's workspace, 22 count of history items, then the items, then 1, the first event, its class letter, then count of turns to withdraw, then what
--         lib/withdraw.lua wants of each
-- DERIVES turn:<id> ctx:<ctx> wait:<ctx> waiting task:<id> hist:<id> ev:<id> turns:* storages q:<scope> due idx:* retain ch:<task> ctl
-- RETURNS OK first number now place, storage where it is queued or '' | DUPLICATE and the same | BUSY turn | WORKING | TERMINAL | NOT_FOUND | RETRY
--         | TAKEN | LIMITED
-- USES    base storage index journal wait place conclude withdraw
local publish, pool, turn, ctx, context_id, scope, task, record, nonce, prev, stamp, state = unpack(ARGV, 1, 12)
local turn_key, task_key, ctx_key, line = P .. 'turn:' .. turn, P .. 'task:' .. task, P .. 'ctx:' .. ctx, P .. 'wait:' .. ctx

local seen = redis.call('HMGET', turn_key, 'f', 'n', 'place', 'q')
if seen[1] then
  return { 'DUPLICATE', seen[1], seen[2], int(now), seen[3] or '0', string.match(seen[4] or '', '@([^:]+)') or '' }
end
local t = redis.call('HMGET', task_key, 'scope', 'ctx', 'last', 'n', 'live', 'k', 'state')
if prev == '' then
  if t[1] then
    return { 'TAKEN' }
  end
else
  if t[1] ~= scope or t[2] ~= ctx then
    return { 'NOT_FOUND' }
  elseif t[6] == 't' then
    return { 'TERMINAL' }
  elseif t[5] ~= '' then
    return { 'WORKING' }
  elseif t[3] ~= prev then
    return { 'RETRY' }
  end
end
local items = tonumber(ARGV[22])
local at = 23 + items
local live, place, withdrawn = redis.call('HMGET', ctx_key, 'turn', 'tok', 'cancel', 'w', 'sto'), 0, {}
local storage = ARGV[21] == '1' and live[5]
local alone = not live[1] or live[1] == ''
local busy = not alone or live[4] -- a line that has lost its live turn goes on first
local interrupted = ARGV[18]
if interrupted ~= '' then
  -- Everything must be as the caller read it: the live turn, and who waits, in the same order.
  local waiting, from = redis.call('LRANGE', line, 0, -1), at + 4
  local same = live[1] == interrupted and #waiting == tonumber(ARGV[at + 3])
  for i = 1, same and #waiting or 0 do
    same = same and ARGV[from] == waiting[i] and is_as_read(from)
    withdrawn[i] = from
    from = select(2, places(from))
  end
  if not same then
    return { 'RETRY' }
  end
  place = 1
elseif busy then
  place = redis.call('LLEN', line) + 1
  if place > tonumber(ARGV[15]) then
    return { 'BUSY', live[1] or '' }
  end
end
local limit = tonumber(ARGV[14])
if limit > 0 and redis.call('ZCARD', P .. 'q:' .. scope) >= limit then
  return { 'LIMITED' }
end

-- Writes. None of them can fail: types are ours, the journal's last id was compared.
local after = prev == '' and '0-0' or prev
local number = prev == '' and 1 or tonumber(t[4]) + 1
ARGV[at + 2] = int(number) .. '.' .. ARGV[at + 2]
if items > 0 then
  redis.call('RPUSH', P .. 'hist:' .. task, unpack(ARGV, 23, 22 + items))
end
local first = append(task, after, nonce, at)
if prev == '' then
  redis.call('HSET', task_key, 'scope', scope, 'ctx', ctx, 'cid', context_id, 'state', state, 'last', first,
    'cr', stamp, 'up', stamp, 'n', int(number), 'live', turn, 'k', 'n', 'a', ARGV[20])
else
  redis.call('HSET', task_key, 'state', state, 'last', first, 'up', stamp, 'n', int(number), 'live', turn, 'k', 'n')
end
local entry, queue = '', 'turns:' .. pool
if not busy then
  entry, queue = enqueue(queue, storage, turn, ctx)
end
redis.call('HSET', turn_key, 'r', record, 'k', task, 'f', first, 'n', int(number), 'e', entry, 'q', queue,
  unpack(ARGV[21] == '1' and { 'ws', '1' } or {}))
if limit > 0 then
  redis.call('ZADD', P .. 'q:' .. scope, int(now), turn)
  redis.call('HSET', turn_key, 's', scope)
end
local ends = {}
if busy then
  for i, from in ipairs(withdrawn) do
    ends[i] = withdraw(ctx, from)
  end
  redis.call('HSET', turn_key, 'age', ARGV[16], 'dl', ARGV[17], 'place', int(place))
  redis.call('RPUSH', line, turn)
  redis.call('ZADD', P .. 'waiting', int(now), turn)
  redis.call('HSET', ctx_key, 'w', '1')
  if interrupted ~= '' and (not live[3] or live[3] == '') then
    redis.call('HSET', ctx_key, 'cancel', live[1] .. ' ' .. nonce)
  end
  if alone or interrupted ~= '' and (not live[2] or live[2] == '') then
    redis.call('ZADD', P .. 'due', int(now), ctx) -- nobody holds it: whoever looks ends it, or begins the next
  end
else
  redis.call('HSET', ctx_key, 'id', context_id, 'scope', scope, 'turn', turn)
  redis.call('ZADD', P .. 'due', int(math.min(now + left_alone(storage), tonumber(ARGV[13]))), ctx)
end
if ARGV[19] == '1' then
  redis.call('HSET', task_key, 'hid', '1')
else
  index(scope, ctx, task, t[7], state, stamp)
end
if prev ~= '' then
  redis.call('ZREM', P .. 'retain', 't:' .. task, 'c:' .. ctx, 'j:' .. task)
  announce(publish, task, prev, first, at)
elseif live[1] and not busy then
  -- Nobody can wait for a task that did not exist: no doorbell.
  redis.call('ZREM', P .. 'retain', 'c:' .. ctx)
end
for i, from in ipairs(withdrawn) do
  announce(publish, ARGV[from + 1], ARGV[from + 2], ends[i], (places(from)))
end
if interrupted ~= '' then
  redis.pcall(publish, P .. 'ctl', 'cancel ' .. ctx .. ' ' .. live[1])
end
return { 'OK', first, int(number), int(now), int(place), not busy and storage or '' }
