"""Measurements that anyone can repeat; `scripts/bench` runs them, and docs/benchmarks is what they said."""
