"""How a realm checks a login: by its own passwords, or at another organisation's server."""
