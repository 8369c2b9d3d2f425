"""Calls of the operating system: processes, interrupts, private files, and the files of the program."""
