"""Opaque tokens, the keyring, password hashes and their threads."""
