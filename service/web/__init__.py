"""The HTTP interface: all code that needs Starlette."""
