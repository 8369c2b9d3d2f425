"""The grants of the token endpoint, one per file."""
