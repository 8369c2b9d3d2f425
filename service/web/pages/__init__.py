"""The pages for people, one per file."""
