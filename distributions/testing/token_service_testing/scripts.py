"""Lua scripts over all keys of the store. Database 1 has a copy of the registry."""

_EACH = """
local call, cursor = redis.call, '0'
repeat
  local page = call('SCAN', cursor, 'COUNT', 1000)
  cursor = page[1]
  for _, key in ipairs(page[2]) do %s end
until cursor == '0'
"""

# A key without a lifetime belongs to the registry; see service/store/keys.py.
KEEP = _EACH % "if call('PTTL', key) == -1 then call('COPY', key, key, 'DB', 1) end"
RESTORE = _EACH % "call('UNLINK', key)" + "call('SELECT', 1)" + _EACH % "call('COPY', key, key, 'DB', 0)"
ADVANCE = _EACH % "local left = call('PTTL', key) if left >= 0 then call('PEXPIRE', key, left - ARGV[1]) end"
