"""The ASGI middleware around the application."""
