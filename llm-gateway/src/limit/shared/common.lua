-- What the scripts of the shared books have in common. The arithmetic is that of bucket.rs, to the digit; see there why.
--
-- An account is a hash: slots, money_reserved, money_spent, tokens_reserved, tokens_spent, and rate1 to rate4, each a bucket as text:
-- "BASE BASE_AT ENDS:PARTS ENDS:PARTS ...". A ticket is a hash: begun, amounts, accounts; the sorted set of tickets has the time at which each
-- expires. All times are this server's, in milliseconds.

local PARTS, CELLS_IN_FILL, MOST_CELLS = 60000, 16, 256
local UNUSED_MS = 8 * 24 * 3600 * 1000

local function now_ms()
    local time = redis.call('TIME')
    return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- Minus zero would be no integer.
local function text(number)
    return string.format('%.0f', number + 0)
end

local function read_bucket(written)
    local bucket = {base = 0, base_at = 0, cells = {}}
    if written then
        local base, base_at, cells = string.match(written, '^(%d+) (%d+)(.*)$')
        bucket.base, bucket.base_at = tonumber(base), tonumber(base_at)
        for ends, parts in string.gmatch(cells, ' (%d+):(%d+)') do
            table.insert(bucket.cells, {ends = tonumber(ends), parts = tonumber(parts)})
        end
    end
    return bucket
end

local function write_bucket(bucket)
    local words = {text(bucket.base), text(bucket.base_at)}
    for _, cell in ipairs(bucket.cells) do
        table.insert(words, text(cell.ends) .. ':' .. text(cell.parts))
    end
    return table.concat(words, ' ')
end

local function refill(debt, rate, ms)
    return math.max(0, debt - rate.per_minute * ms)
end

local function debt_at(bucket, rate, now)
    local debt, at = bucket.base, bucket.base_at
    for _, cell in ipairs(bucket.cells) do
        local from = math.max(math.min(cell.ends, now), at)
        debt = refill(debt, rate, from - at) + cell.parts
        at = from
    end
    return refill(debt, rate, math.max(0, now - at))
end

local function cell_length(rate)
    return math.max(1, math.floor(math.floor(rate.burst * PARTS / rate.per_minute) / CELLS_IN_FILL))
end

-- Milliseconds until an amount fits: 0 is now, -1 is never.
local function wait_for(bucket, rate, amount, now)
    if amount > rate.burst then
        return -1
    end
    local room = (rate.burst - amount) * PARTS
    local function over(at)
        return math.max(0, debt_at(bucket, rate, at) - room)
    end
    if over(now) == 0 then
        return 0
    end
    local soonest = now + math.ceil(over(now) / rate.per_minute)
    if over(soonest) == 0 then
        return soonest - now
    end
    local last = bucket.cells[#bucket.cells]
    local after = math.max(last and last.ends or 0, soonest)
    return after + math.ceil(over(after) / rate.per_minute) - now
end

local function charge(bucket, rate, amount, now)
    local cells = bucket.cells
    local last = cells[#cells]
    if (not last or last.ends <= now) and debt_at(bucket, rate, now) == 0 then
        bucket.base, bucket.base_at = 0, math.max(now, bucket.base_at)
        cells = {}
        bucket.cells = cells
    end
    while #cells >= MOST_CELLS do
        local first = table.remove(cells, 1)
        bucket.base = refill(bucket.base, rate, math.max(0, first.ends - bucket.base_at)) + first.parts
        bucket.base_at = math.max(first.ends, bucket.base_at)
    end
    local ends = math.ceil(now / cell_length(rate)) * cell_length(rate)
    last = cells[#cells]
    if last and last.ends >= ends then
        last.parts = last.parts + amount * PARTS
    else
        table.insert(cells, {ends = ends, parts = amount * PARTS})
    end
end

local function correct(bucket, rate, begun, reserved, used, now)
    for _, cell in ipairs(bucket.cells) do
        if cell.ends >= begun then
            if cell.ends - begun < cell_length(rate) then
                cell.parts = math.max(0, cell.parts + (used - reserved) * PARTS)
                return
            end
            break
        end
    end
    if used > reserved then
        charge(bucket, rate, used - reserved, now)
    end
end

-- Six amounts: of the four rates, of money, of the budget of tokens. `at` is where in the arguments the first is.
local function read_amounts(words, at)
    local amounts = {}
    for i = 1, 6 do
        amounts[i] = tonumber(words[at + i - 1])
    end
    return amounts
end

-- Eleven limits of an account: per minute and burst of four rates (0 where there is none), calls at once, money, tokens (-1 where there is none).
local LIMITS = 11
local function read_limits(at)
    local limits = {rates = {}}
    for i = 1, 4 do
        local per_minute = tonumber(ARGV[at + 2 * i - 2])
        if per_minute > 0 then
            limits.rates[i] = {per_minute = per_minute, burst = tonumber(ARGV[at + 2 * i - 1])}
        end
    end
    limits.concurrent, limits.money, limits.tokens = tonumber(ARGV[at + 8]), tonumber(ARGV[at + 9]), tonumber(ARGV[at + 10])
    return limits
end

local function field(account, name)
    return tonumber(redis.call('HGET', account, name) or '0')
end

local function give_back(account, amounts, money, tokens)
    redis.call('HINCRBY', account, 'slots', -1)
    redis.call('HINCRBY', account, 'money_reserved', text(-amounts[5]))
    redis.call('HINCRBY', account, 'money_spent', text(money))
    redis.call('HINCRBY', account, 'tokens_reserved', text(-amounts[6]))
    redis.call('HINCRBY', account, 'tokens_spent', text(tokens))
end

local function read_ticket(ticket)
    local found = redis.call('HMGET', ticket, 'begun', 'amounts', 'accounts')
    if not found[1] then
        return nil
    end
    local words, accounts = {}, {}
    for word in string.gmatch(found[2], '%S+') do
        table.insert(words, word)
    end
    for account in string.gmatch(found[3], '[^\n]+') do
        table.insert(accounts, account)
    end
    return {begun = tonumber(found[1]), amounts = read_amounts(words, 1), accounts = accounts}
end

-- Tickets whose gateway has not renewed them: it is gone. Its calls may have been sent, so that what they reserved is spent; their slots are free.
local function expire(tickets, now)
    for _, ticket in ipairs(redis.call('ZRANGEBYSCORE', tickets, '-inf', now, 'LIMIT', 0, 50)) do
        local held = read_ticket(ticket)
        if held then
            for _, account in ipairs(held.accounts) do
                give_back(account, held.amounts, held.amounts[5], held.amounts[6])
            end
        end
        redis.call('DEL', ticket)
        redis.call('ZREM', tickets, ticket)
    end
end
