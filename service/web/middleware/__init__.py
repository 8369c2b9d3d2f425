"""The middleware around the application."""
