"""Password hashes with weaker parameters than the service's."""

# argon2id of "a password" with less memory and time than the service uses.
WEAK_HASH = "$argon2id$v=19$m=1024,t=1,p=1$c29tZXNhbHRzb21lc2FsdA$zxuBYsjcgFUpWm1FhrlahZmdci/D7fyVnl+W0Oyn3OU"


# As other systems hash: with more memory or less than the service uses.
SALT = "c29tZXNhbHRzb21lc2FsdA"


WEAKER_HASH = f"$argon2id$v=19$m=8192,t=1,p=1${SALT}$bk9WJIwezG+8sdKcfYvijCY1wBF7HmhBMG2FwN1lGi8"

BCRYPT_HASH = "$2b$04$wgoRQpIgcT5xFPSA2LXBP.aTjLa8cRVbJtyxKEkhX.A2xu9445ZCG"
"""The hash of "a password" by bcrypt at its lowest cost."""
