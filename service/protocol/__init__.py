"""The rules of the protocol as plain values and functions: no await, clock, randomness, Redis or HTTP."""
