-- Milliseconds since the epoch by this server's clock, never fewer than were given before.
-- After the clock was set back, time goes on at half its speed until the clock has caught up.
-- KEYS: what was given.
local time = redis.call('TIME')
local clock = time[1] * 1000 + math.floor(time[2] / 1000)
local seen = redis.call('HMGET', KEYS[1], 'given', 'clock')
local given, seen_clock = tonumber(seen[1] or 0), tonumber(seen[2] or 0)
local now = clock
if clock < given then
  local passed = math.floor((clock - seen_clock) / 2)
  if passed == 0 then
    now, clock = given, seen_clock
  else
    now = given + math.max(passed, 0)
  end
end
now = string.format('%.0f', now)
redis.call('HSET', KEYS[1], 'given', now, 'clock', string.format('%.0f', clock))
return now
