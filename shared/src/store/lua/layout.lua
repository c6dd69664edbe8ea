#!lua
-- Writes the layout once; everyone after reads what is there.
-- KEYS    1 relevo:layout
-- ARGV    pairs (field, value)
-- DERIVES
-- RETURNS LAYOUT, pairs
-- USES
if redis.call('EXISTS', KEYS[1]) == 0 then
  redis.call('HSET', KEYS[1], unpack(ARGV))
end
return { 'LAYOUT', redis.call('HGETALL', KEYS[1]) }
