#!lua flags=allow-oom
-- Prolongs leases of one partition, expired ones too: what counts is that the token is still current.
-- KEYS    1 meta
-- ARGV    1 lease ttl (ms), then triples (context key, token, turn)
-- DERIVES ctx:<ctx> due
-- RETURNS RENEWED now, list of tokens that are lost, list of tokens whose turn is cancelled
-- USES    base
local expires = int(now + tonumber(ARGV[1]))
local lost, canceled = {}, {}
for i = 2, #ARGV, 3 do
  local ctx, token, turn = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  local c = redis.call('HMGET', P .. 'ctx:' .. ctx, 'tok', 'turn', 'cancel')
  if c[1] ~= token or c[2] ~= turn then
    lost[#lost + 1] = token -- not the context: a worker may hold an old and a current token of one
  else
    redis.call('HSET', P .. 'ctx:' .. ctx, 'until', expires)
    redis.call('ZADD', P .. 'due', expires, ctx)
    if c[3] and c[3] ~= '' then
      canceled[#canceled + 1] = token
    end
  end
end
return { 'RENEWED', int(now), lost, canceled }
