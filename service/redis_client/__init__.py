"""A client for Redis: single servers, Sentinel and Cluster."""
