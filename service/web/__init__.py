"""HTTP: everything that needs Starlette."""
