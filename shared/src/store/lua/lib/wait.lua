-- Says in a context whether turns wait behind its live one, so that the end of a turn need not look.
local function note_waiting(ctx)
  if redis.call('EXISTS', P .. 'wait:' .. ctx) == 0 then
    redis.call('HDEL', P .. 'ctx:' .. ctx, 'w')
  end
end
