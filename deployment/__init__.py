"""Configurations for production, and `stack`, which starts them locally."""
