"""Calls of the operating system: malloc, scheduling, the death of a parent process, private files."""
