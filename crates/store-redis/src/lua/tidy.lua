-- Takes an id out of the indexes when its row is gone, because the server dropped it.
-- KEYS: row, deadlines, ids. ARGV: id.
if redis.call('EXISTS', KEYS[1]) == 0 then
  redis.call('ZREM', KEYS[2], ARGV[1])
  redis.call('ZREM', KEYS[3], ARGV[1])
end
return 1
