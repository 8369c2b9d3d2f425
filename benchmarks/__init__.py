"""Measurements of the service. `scripts/bench` runs them and writes docs/explanation/benchmarks.md."""
