-- Stores the result of a turn, and leaves of it what answers a repeated submit: `f` and `n`. All checks are the caller's.
-- f: turn, task, class, state, snapshot, last, stamp, keep (place of four numbers of ms in ARGV: task, context, journal, turn),
--    history (place of a count in ARGV, then items), hid (whether nobody saw the task: an end is seen, unless the caller says otherwise),
--    place (lib/place.lua)
local function conclude(f)
  local items = f.history + tonumber(ARGV[f.history])
  for from = f.history + 1, items, 1000 do -- in pieces: Lua cannot unpack more than some thousand values
    redis.call('RPUSH', P .. 'hist:' .. f.task, unpack(ARGV, from, math.min(from + 999, items)))
  end
  redis.call('HSET', P .. 'task:' .. f.task, 'last', f.last, 'state', f.state, 'up', f.stamp, 'k', f.class, 'live', '',
    'snap', f.snapshot, 'snapc', f.last)
  if f.hid then
    redis.call('HDEL', P .. 'task:' .. f.task, 'hid')
  end
  local turn = P .. 'turn:' .. f.turn
  if f.place[1] and f.place[1] ~= '' then
    redis.call('ZREM', P .. 'q:' .. f.place[1], f.turn)
  end
  redis.call('HDEL', turn, 'r', 'k', 'e', 'q', 's', 'ws', 'age', 'dl', 'place', 'since', 'charged', 'handbacks', 'opened', 'begun', 'slen', 'sn')
  redis.call('PEXPIRE', turn, ARGV[f.keep + 3])
end
