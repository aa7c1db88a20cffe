-- Something to wait for, and nothing else.
-- KEYS: mark.
redis.call('SET', KEYS[1], '')
return 1
