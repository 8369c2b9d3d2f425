"""The API endpoints, one per file."""
