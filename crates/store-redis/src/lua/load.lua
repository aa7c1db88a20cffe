-- The row, once what it is read from can be waited for.
-- KEYS: row, mark.
redis.call('SET', KEYS[2], '')
return redis.call('GET', KEYS[1])
