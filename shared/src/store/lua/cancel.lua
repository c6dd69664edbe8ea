#!lua flags=allow-oom
-- Asks for the end of a turn. A leased turn is marked and its worker told; one that is not is the caller's to settle.
-- KEYS    1 meta
-- ARGV    1 publish command, 2 context key, 3 turn, 4 nonce of the request
-- DERIVES ctx:<ctx> wait:<ctx> ctl
-- RETURNS REQUESTED | UNLEASED | WAITING | GONE
-- USES    base
local publish, ctx, turn, nonce = unpack(ARGV)
local c = redis.call('HMGET', P .. 'ctx:' .. ctx, 'turn', 'tok', 'cancel')
if c[1] ~= turn then
  if redis.call('LPOS', P .. 'wait:' .. ctx, turn) then
    return { 'WAITING' }
  end
  return { 'GONE' }
end
if not c[2] or c[2] == '' then
  return { 'UNLEASED' }
end
if not c[3] or c[3] == '' then
  redis.call('HSET', P .. 'ctx:' .. ctx, 'cancel', turn .. ' ' .. nonce)
end
redis.pcall(publish, P .. 'ctl', 'cancel ' .. ctx .. ' ' .. turn)
return { 'REQUESTED' }
