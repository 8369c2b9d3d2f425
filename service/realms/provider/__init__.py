"""How the service speaks to an external identity provider."""
