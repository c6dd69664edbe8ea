-- Appends ARGV[at] (a count) entries, then pairs (event, kind), after entry `prev`; announces them; returns the last id.
-- The caller has checked that `prev` is the journal's last entry: XADD cannot fail then.
local DOORBELL = 16384 -- bytes of payload; above it the doorbell carries ids only

local function append(task, prev, nonce, at)
  local seq = tonumber(string.match(prev, '^%d+'))
  local key, id = P .. 'ev:' .. task, prev
  for i = 1, tonumber(ARGV[at]) do
    id = int(seq + i) .. '-' .. nonce
    redis.call('XADD', key, id, 'e', ARGV[at + 2 * i - 1], 'k', ARGV[at + 2 * i])
  end
  return id
end

-- PUBLISH may fail (ACL): the journal is the truth, a doorbell only an accelerator. Returns whether it did not, and how many heard it,
-- as far as that can be known.
local function announce(publish, task, prev, last, at)
  local kinds, lengths, events, size = {}, {}, {}, 0
  for i = 1, tonumber(ARGV[at]) do
    local event = ARGV[at + 2 * i - 1]
    events[i], kinds[i], lengths[i] = event, ARGV[at + 2 * i], #event
    size = size + #event
  end
  local head = prev .. ' ' .. last .. ' ' .. table.concat(kinds, ',') .. ' ' .. table.concat(lengths, ',') .. '\n'
  if size <= DOORBELL then
    head = head .. table.concat(events)
  end
  local sent = redis.pcall(publish, P .. 'ch:' .. task, head)
  if type(sent) == 'table' and sent.err then
    return 0, 1
  end
  return 1, sent
end
