"""The settings: how they are parsed, read and what they mean."""
