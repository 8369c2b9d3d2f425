"""Opaque tokens, keys, and hashes of passwords."""
