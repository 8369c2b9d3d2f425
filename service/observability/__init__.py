"""Logs, security events and metrics."""
