-- Judges a write of a lease holder: is it a repeat, is it still allowed, does it name what it follows?
-- Returns a reply to give at once, or nil, the context's fields and the task's fields.
local function judge(ctx, epoch, token, turn, task, prev, nonce, count)
  local c = redis.call('HMGET', P .. 'ctx:' .. ctx, 'turn', 'ep', 'tok', 'cancel', 'w', 'sto')
  local t = redis.call('HMGET', P .. 'task:' .. task, 'last', 'state', 'scope', 'n', 'base', 'hid')
  if t[1] and t[1] ~= prev then
    -- A repeat is known by its first entry, before the fence is judged: its turn may have ended since.
    local seq = tonumber(string.match(prev, '^%d+'))
    local first = int(seq + 1) .. '-' .. nonce
    if #redis.call('XRANGE', P .. 'ev:' .. task, first, first) == 1 then
      return { 'DONE', int(seq + count) .. '-' .. nonce, int(now), '1' }
    end
  end
  if not t[1] or c[1] ~= turn or c[2] ~= epoch or c[3] ~= token or token == '' then
    return { 'FENCED' }
  end
  if t[1] ~= prev then
    return { 'DIVERGED', t[1] }
  end
  return nil, c, t
end

-- How many items the session of the turn's agent held when the turn began.
local function length_at_start(turn_key)
  return tonumber(redis.call('HGET', turn_key, 'slen') or '0')
end

-- What a boundary takes back: snapshot and session of the turn's agent are as they were at the turn's start.
local function take_back(key, task, t, session)
  local length = length_at_start(key)
  if length == 0 then
    redis.call('DEL', session)
  else
    redis.call('LTRIM', session, 0, length - 1)
  end
  if t[5] then
    local base = redis.call('HMGET', P .. 'task:' .. task, 'base', 'basec')
    redis.call('HSET', P .. 'task:' .. task, 'snap', base[1], 'snapc', base[2])
  end
end
