-- The one script of a frontier: a compare-and-set of one entry, in three verbs.
--
-- KEYS[1]  hash of one fingerprint and device class, with the fields
--            rank      place among offers, fixed width: the lower text is the better offer
--            offer     the best offer as JSON, opaque here
--            revision  how often it has changed
--            epoch     latest epoch that the key has heard of, fixed width
-- ARGV     verb, epoch, and of offer and set: rank, offer, revision (of set alone)
--
-- Numbers are texts of fixed width and come back as texts: Lua's own are doubles, and a reply would be cut to an integer.

local key, verb, epoch, rank, offer, revision = KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]

-- A rebuild replaces whatever lies there; an offer to a key of another type fails with WRONGTYPE.
if verb ~= 'offer' and redis.call('TYPE', key).ok ~= 'hash' then
    redis.call('DEL', key)
end

local fence = redis.call('HGET', key, 'epoch')
if fence and epoch < fence then
    return {'stale', fence}
end

if verb == 'drop' then
    redis.call('DEL', key)
    return {'dropped'}
end

if verb == 'set' then
    redis.call('HSET', key, 'rank', rank, 'offer', offer, 'revision', revision, 'epoch', epoch)
    return {'set'}
end

local best = redis.call('HGET', key, 'rank')
if best and best <= rank then
    if epoch ~= fence then
        redis.call('HSET', key, 'epoch', epoch)
    end
    return {'kept', redis.call('HGET', key, 'offer'), redis.call('HGET', key, 'revision')}
end
redis.call('HSET', key, 'rank', rank, 'offer', offer, 'epoch', epoch)
redis.call('HINCRBY', key, 'revision', 1)
return {'improved', redis.call('HGET', key, 'revision')}
