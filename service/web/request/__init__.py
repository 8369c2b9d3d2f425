"""Functions that read a request and authenticate its client."""
