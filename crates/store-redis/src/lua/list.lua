-- The next rows of one shard, in the order of their ids.
-- KEYS: ids. ARGV: where to start, limit, what a row's key starts with, enough bytes.
-- Answers 1 if these are the last or 0, then id and row (nil if it is gone), flat.
-- A write that changes nothing: a server that is no longer the primary refuses it.
redis.call('ZREM', KEYS[1], '')
local ids = redis.call('ZRANGEBYLEX', KEYS[1], ARGV[1], '+', 'LIMIT', 0, ARGV[2])
local last = (#ids < tonumber(ARGV[2])) and 1 or 0
local answer, bytes = { last }, 0
for i, id in ipairs(ids) do
  local row = redis.call('GET', ARGV[3] .. id)
  answer[#answer + 1] = id
  answer[#answer + 1] = row
  bytes = bytes + (row and #row or 0)
  if bytes >= tonumber(ARGV[4]) and i < #ids then
    answer[1] = 0
    break
  end
end
return answer
