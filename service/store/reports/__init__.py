"""Reports about the store and scans of it, for operators and background work. No client request needs them."""
