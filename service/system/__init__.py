"""Calls of the operating system: malloc, the death of a parent process, private files and a packet filter."""
