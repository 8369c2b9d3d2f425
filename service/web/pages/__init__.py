"""The pages for people, one a file."""
