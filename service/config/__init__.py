"""The settings: their parsers, their reading, their table and their meaning."""
