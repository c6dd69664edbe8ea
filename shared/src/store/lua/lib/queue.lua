-- The id up to which the group `workers` has read a queue. Without a group it has read nothing: groups begin at 0.
local function delivered(queue)
  local groups = redis.pcall('XINFO', 'GROUPS', queue)
  for _, group in ipairs(groups.err and {} or groups) do
    local facts = {}
    for i = 1, #group, 2 do
      facts[group[i]] = group[i + 1]
    end
    if facts.name == 'workers' then
      return facts['last-delivered-id']
    end
  end
  return '0-0'
end

-- Whether one stream id comes after another.
local function comes_after(one, other)
  local a, b = string.match(one, '(%d+)-(%d+)')
  local c, d = string.match(other, '(%d+)-(%d+)')
  a, b, c, d = tonumber(a), tonumber(b), tonumber(c), tonumber(d)
  return a > c or (a == c and b > d)
end
