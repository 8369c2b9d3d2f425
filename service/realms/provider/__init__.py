"""Calls to external identity providers: client, circuit breaker and ID tokens."""
