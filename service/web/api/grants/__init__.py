"""The grants of the token endpoint, one a file."""
