"""The endpoints for programs, one a file."""
