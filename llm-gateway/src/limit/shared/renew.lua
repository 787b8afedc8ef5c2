-- Tickets whose gateway is still there. KEYS: the tickets, those to renew. ARGV: time to live.

local expires = text(now_ms() + tonumber(ARGV[1]))
for i = 2, #KEYS do
    redis.call('ZADD', KEYS[1], 'XX', expires, KEYS[i])
end
return #KEYS - 1
