-- The earliest ids of one shard whose deadline has passed.
-- KEYS: deadlines. ARGV: now, limit, what a row's key starts with.
-- Answers id, deadline and whether the row is there (1 or 0), flat.
-- A write that changes nothing: a server that is no longer the primary refuses it.
redis.call('ZREM', KEYS[1], '')
local due = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', ARGV[1], 'WITHSCORES', 'LIMIT', 0, ARGV[2])
local answer = {}
for i = 1, #due, 2 do
  answer[#answer + 1] = due[i]
  answer[#answer + 1] = due[i + 1]
  answer[#answer + 1] = redis.call('EXISTS', ARGV[3] .. due[i])
end
return answer
