"""Measurements that anyone can repeat; `scripts/bench` runs them."""
