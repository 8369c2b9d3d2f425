"""HTTP: one file an address, each a thin handler that loads, judges, commits and renders."""
