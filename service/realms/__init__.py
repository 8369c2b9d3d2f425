"""Login checks of each realm: by passwords stored here, or at an external identity provider."""
