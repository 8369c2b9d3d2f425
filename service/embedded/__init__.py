"""The Redis-compatible server that the service starts itself."""
