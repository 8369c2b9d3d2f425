"""How requests are read."""
