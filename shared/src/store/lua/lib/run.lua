-- The identity of this server process: another one means that no worker could renew for a while.
local function run_id()
  return string.match(redis.call('INFO', 'server'), 'run_id:(%x+)') or ''
end
