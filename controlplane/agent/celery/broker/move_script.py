"""Redis script that moves one message from a queue to the hash of a worker, in one atomic step."""

from __future__ import annotations

import hashlib

# KEYS: the lists of the queues in the order of preference, then kombu's hash and sorted set of the worker's messages.
# ARGV: the time, as kombu writes it into the sorted set. The script returns the list, the message and its delivery tag.
# If all lists are empty, it returns nothing.
#
# The hash gets the same entry as from kombu's QoS.append: the message as it was published, its exchange, its routing
# key. cjson only reads the exchange and the routing key. It does not write the message, because it would change empty
# lists and large numbers.
#
# Redis does not undo a script that fails halfway. So if HSET is refused (by an access rule, or because the key has
# another type), the script returns the message to its list. A refused ZADD does no harm, because only the hash counts.
#
# If the script finds no tag in the message, it returns the tag ''. Python then reads the message.
SCRIPT = r"""
local lists = #KEYS - 2
local list, item
if redis.REDIS_VERSION_NUM then  -- Redis 7: one command looks into all lists
  local command = {'LMPOP', lists}
  for i = 1, lists do command[#command + 1] = KEYS[i] end
  command[#command + 1] = 'RIGHT'
  local found = redis.call(unpack(command))
  if found then list, item = found[1], found[2][1] end
else
  for i = 1, lists do
    item = redis.call('RPOP', KEYS[i])
    if item then list = KEYS[i] break end
  end
end
if not item then return false end

local function read(text)
  -- kombu writes the body first, in base64. It is left out, because cjson takes long for a large one.
  local start = '{"body": "'
  if text:sub(1, #start) == start then
    local quote, escape = text:find('"', #start + 1, true), text:find('\\', #start + 1, true)
    if quote and (not escape or escape > quote) then text = start .. text:sub(quote) end
  end
  local is_read, message = pcall(cjson.decode, text)
  if not is_read then  -- cjson refuses half of a surrogate pair, which Python writes and reads
    local plain = text:gsub('\\(.)', function(escaped) if escaped == 'u' then return '?' end end)
    is_read, message = pcall(cjson.decode, plain)
  end
  local properties = is_read and type(message) == 'table' and message.properties
  local info = type(properties) == 'table' and properties.delivery_info
  if type(info) ~= 'table' or info.exchange == nil or info.routing_key == nil then return end
  local tag = properties.delivery_tag
  if type(tag) == 'number' then tag = string.format('%.0f', tag) end
  if type(tag) == 'string' then return tag, info.exchange, info.routing_key end
end

local tag, exchange, routing_key = read(item)
if not tag then return {list, item, ''} end
local record = '[' .. item .. ', ' .. cjson.encode(exchange) .. ', ' .. cjson.encode(routing_key) .. ']'
local kept = redis.pcall('HSET', KEYS[lists + 1], tag, record)
if type(kept) == 'table' and kept.err then
  redis.call('RPUSH', list, item)
  return kept
end
redis.call('ZADD', KEYS[lists + 2], ARGV[1], tag)
return {list, item, tag}
"""
DIGEST = hashlib.sha1(SCRIPT.encode(), usedforsecurity=False).hexdigest()
