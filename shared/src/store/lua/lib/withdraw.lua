-- Ends turns that wait behind another: they never began. ARGV holds of each, from `at` on: turn, task, prev, nonce, stamp,
-- state, snapshot, four numbers of ms (lib/conclude.lua), count of history items, then the items, then count of events, then
-- pairs (event, kind).

-- Where the events of one are, and where the next one begins.
local function places(at)
  local events = at + 12 + tonumber(ARGV[at + 11])
  return events, events + 1 + 2 * tonumber(ARGV[events])
end

-- Whether its task is as the caller read it.
local function is_as_read(at)
  return redis.call('HGET', P .. 'task:' .. ARGV[at + 1], 'last') == ARGV[at + 2]
end

-- The caller has checked that it waits, and announces what is appended. Returns the last id.
local function withdraw(ctx, at)
  local turn, task, prev, nonce, stamp, state, snapshot = unpack(ARGV, at, at + 6)
  local t = redis.call('HMGET', P .. 'task:' .. task, 'state', 'scope', 'hid')
  redis.call('LREM', P .. 'wait:' .. ctx, 1, turn)
  redis.call('ZREM', P .. 'waiting', turn)
  note_waiting(ctx)
  local last = append(task, prev, nonce, (places(at)))
  conclude({
    turn = turn, task = task, class = 't', state = state, snapshot = snapshot, last = last, stamp = stamp,
    keep = at + 7, history = at + 11, hid = t[3], place = place_of(turn),
  })
  redis.call('ZADD', P .. 'retain', int(now + tonumber(ARGV[at + 7])), 't:' .. task,
    int(now + tonumber(ARGV[at + 9])), 'j:' .. task)
  index(t[2], ctx, task, t[1], state, stamp)
  return last
end
