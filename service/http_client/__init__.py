"""HTTP requests to other systems."""
