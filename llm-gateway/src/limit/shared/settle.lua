-- Charges what was used and gives the rest and the slots back.
-- KEYS: the tickets, this ticket, its accounts. ARGV: six amounts that were used, eleven limits of each account.
-- Returns 1, or 0 where there is no such ticket any more.

local now = now_ms()
local held = read_ticket(KEYS[2])
expire(KEYS[1], now)
if not held or redis.call('EXISTS', KEYS[2]) == 0 then
    return 0
end
local used = read_amounts(ARGV, 1)
for i = 3, #KEYS do
    local account = KEYS[i]
    for kind, rate in pairs(read_limits(7 + (i - 3) * LIMITS).rates) do
        local bucket = read_bucket(redis.call('HGET', account, 'rate' .. kind))
        correct(bucket, rate, held.begun, held.amounts[kind], used[kind], now)
        redis.call('HSET', account, 'rate' .. kind, write_bucket(bucket))
    end
    give_back(account, held.amounts, used[5], used[6])
end
redis.call('DEL', KEYS[2])
redis.call('ZREM', KEYS[1], KEYS[2])
return 1
