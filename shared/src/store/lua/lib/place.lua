-- The place of a turn: scope that it counts for, queue entry, queue.
local function place_of(turn)
  return redis.call('HMGET', P .. 'turn:' .. turn, 's', 'e', 'q')
end
