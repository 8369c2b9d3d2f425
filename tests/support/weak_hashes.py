"""Hashes of passwords with weaker parameters than today's."""

from __future__ import annotations

# argon2id with less memory and time than we ask for today; of "a password".
WEAK_HASH = "$argon2id$v=19$m=1024,t=1,p=1$c29tZXNhbHRzb21lc2FsdA$zxuBYsjcgFUpWm1FhrlahZmdci/D7fyVnl+W0Oyn3OU"


# As other systems hash: with more and with less than we ask for.
SALT = "c29tZXNhbHRzb21lc2FsdA"


WEAKER_HASH = f"$argon2id$v=19$m=8192,t=1,p=1${SALT}$bk9WJIwezG+8sdKcfYvijCY1wBF7HmhBMG2FwN1lGi8"
