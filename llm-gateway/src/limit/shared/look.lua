-- One account. KEYS: the tickets, the account. ARGV: its eleven limits.
-- Returns calls in flight, money reserved and spent, tokens reserved and spent, and what is left of each rate, -1 where it is not limited.

local now = now_ms()
expire(KEYS[1], now)
local account, limits = KEYS[2], read_limits(1)
local seen = {}
for _, name in ipairs({'slots', 'money_reserved', 'money_spent', 'tokens_reserved', 'tokens_spent'}) do
    table.insert(seen, redis.call('HGET', account, name) or '0')
end
for kind = 1, 4 do
    local rate, left = limits.rates[kind], -1
    if rate then
        local bucket = read_bucket(redis.call('HGET', account, 'rate' .. kind))
        left = math.floor(math.max(0, rate.burst * PARTS - debt_at(bucket, rate, now)) / PARTS)
    end
    table.insert(seen, text(left))
end
return seen
