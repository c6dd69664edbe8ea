-- Every script: the partition's key prefix and Redis time.
local P = string.sub(KEYS[1], 1, -5) -- KEYS[1] = <prefix>:{<tag>}:meta
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)

-- Numbers become text here: Lua's own conversion loses digits above 10^14.
local function int(n)
  return string.format('%d', n)
end
