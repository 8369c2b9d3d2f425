"""The commands of the console, one subject a file."""
