-- Reserves in all accounts, or in none.
-- KEYS: the tickets, this ticket, the accounts. ARGV: time to live of the ticket, six amounts, eleven limits of each account.
-- Returns the obstacles, each as {account (from 1), meter, when, wait}; none where it is reserved. A ticket that is there already is reserved.

local now = now_ms()
expire(KEYS[1], now)
if redis.call('EXISTS', KEYS[2]) == 1 then
    return {}
end
local amounts = read_amounts(ARGV, 2)
local obstacles, books = {}, {}
for i = 3, #KEYS do
    local account, limits, buckets = KEYS[i], read_limits(8 + (i - 3) * LIMITS), {}
    local function obstacle(meter, when, wait)
        table.insert(obstacles, {i - 2, meter, when, wait})
    end
    for kind, rate in pairs(limits.rates) do
        buckets[kind] = read_bucket(redis.call('HGET', account, 'rate' .. kind))
        local wait = wait_for(buckets[kind], rate, amounts[kind], now)
        if wait ~= 0 then
            obstacle(kind, wait < 0 and 3 or 0, wait)
        end
    end
    if limits.concurrent >= 0 and field(account, 'slots') >= limits.concurrent then
        obstacle(5, 1, 0)
    end
    local function budget(meter, limit, name, amount)
        local spent = limit >= 0 and field(account, name .. '_spent') or 0
        if limit >= 0 and spent + field(account, name .. '_reserved') + amount > limit then
            obstacle(meter, amount > limit and 3 or spent + amount > limit and 2 or 1, 0)
        end
    end
    budget(6, limits.money, 'money', amounts[5])
    budget(7, limits.tokens, 'tokens', amounts[6])
    table.insert(books, {account = account, limits = limits, buckets = buckets})
end
if #obstacles > 0 then
    return obstacles
end

local names = {}
for _, book in ipairs(books) do
    for kind, rate in pairs(book.limits.rates) do
        charge(book.buckets[kind], rate, amounts[kind], now)
        redis.call('HSET', book.account, 'rate' .. kind, write_bucket(book.buckets[kind]))
    end
    redis.call('HINCRBY', book.account, 'slots', 1)
    redis.call('HINCRBY', book.account, 'money_reserved', text(amounts[5]))
    redis.call('HINCRBY', book.account, 'tokens_reserved', text(amounts[6]))
    -- What is spent of a budget is never forgotten.
    if book.limits.money >= 0 or book.limits.tokens >= 0 then
        redis.call('PERSIST', book.account)
    else
        redis.call('PEXPIRE', book.account, UNUSED_MS)
    end
    table.insert(names, book.account)
end
local words = {}
for i = 1, 6 do
    words[i] = text(amounts[i])
end
redis.call('HSET', KEYS[2], 'begun', text(now), 'amounts', table.concat(words, ' '), 'accounts', table.concat(names, '\n'))
redis.call('ZADD', KEYS[1], text(now + tonumber(ARGV[1])), KEYS[2])
return {}
