-- Keeps the first value that it is given, and answers what is kept.
-- KEYS: the value's; with `wait` also a mark. ARGV: a value.
redis.call('SET', KEYS[1], ARGV[1], 'NX')
if KEYS[2] then redis.call('SET', KEYS[2], '') end
return redis.call('GET', KEYS[1])
