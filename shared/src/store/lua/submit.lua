#!lua
-- Accepts a turn: turn record, history, first event, queue entry, due, indexes, in one step.
-- KEYS    1 meta
-- ARGV    1 publish command, 2 pool, 3 turn, 4 context key, 5 context id, 6 scope, 7 task, 8 record, 9 nonce,
--         10 prev ('' = the turn creates its task), 11 stamp, 12 state, 13 Redis ms at which it is worth nothing any more,
--         14 most live turns of the scope in this partition (0 = any), 15 count of history items, then the items, then 1,
--         the first event, its class letter
-- DERIVES turn:<id> ctx:<ctx> task:<id> hist:<id> ev:<id> turns:<pool> q:<scope> due idx:* retain ch:<task>
-- RETURNS OK first number now | DUPLICATE first number now | BUSY turn | WORKING | TERMINAL | NOT_FOUND | RETRY | TAKEN | LIMITED
-- USES    base index journal
local publish, pool, turn, ctx, context_id, scope, task, record, nonce, prev, stamp, state = unpack(ARGV, 1, 12)
local turn_key, task_key, ctx_key = P .. 'turn:' .. turn, P .. 'task:' .. task, P .. 'ctx:' .. ctx

local seen = redis.call('HMGET', turn_key, 'f', 'n')
if seen[1] then
  return { 'DUPLICATE', seen[1], seen[2], int(now) }
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
local live = redis.call('HGET', ctx_key, 'turn')
if live and live ~= '' then
  return { 'BUSY', live }
end
local limit = tonumber(ARGV[14])
if limit > 0 and redis.call('ZCARD', P .. 'q:' .. scope) >= limit then
  return { 'LIMITED' }
end

-- Writes. None of them can fail: types are ours, the journal's last id was compared.
local after = prev == '' and '0-0' or prev
local number = prev == '' and 1 or tonumber(t[4]) + 1
local items = tonumber(ARGV[15])
local at = 16 + items
ARGV[at + 2] = int(number) .. '.' .. ARGV[at + 2]
if items > 0 then
  redis.call('RPUSH', P .. 'hist:' .. task, unpack(ARGV, 16, 15 + items))
end
local first = append(task, after, nonce, at)
if prev == '' then
  redis.call('HSET', task_key, 'scope', scope, 'ctx', ctx, 'cid', context_id, 'state', state, 'last', first,
    'cr', stamp, 'up', stamp, 'n', int(number), 'live', turn, 'k', 'n')
else
  redis.call('HSET', task_key, 'state', state, 'last', first, 'up', stamp, 'n', int(number), 'live', turn, 'k', 'n')
end
local entry = redis.call('XADD', P .. 'turns:' .. pool, '*', 't', turn, 'x', ctx)
redis.call('HSET', turn_key, 'r', record, 'k', task, 'f', first, 'n', int(number), 'e', entry, 'q', 'turns:' .. pool)
if limit > 0 then
  redis.call('ZADD', P .. 'q:' .. scope, int(now), turn)
  redis.call('HSET', turn_key, 's', scope)
end
redis.call('HSET', ctx_key, 'id', context_id, 'scope', scope, 'turn', turn)
redis.call('ZADD', P .. 'due', int(math.min(now + 30000, tonumber(ARGV[13]))), ctx)
index(scope, ctx, task, t[7], state, stamp)
if prev ~= '' then
  redis.call('ZREM', P .. 'retain', 't:' .. task, 'c:' .. ctx, 'j:' .. task)
  announce(publish, task, prev, first, at)
elseif live then
  -- Nobody can wait for a task that did not exist: no doorbell.
  redis.call('ZREM', P .. 'retain', 'c:' .. ctx)
end
return { 'OK', first, int(number), int(now) }
