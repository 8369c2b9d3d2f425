"""Sessions: families of refresh tokens, codes, access tokens, and their revocation."""
