"""Requests to other systems."""
