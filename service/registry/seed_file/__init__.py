"""The seed file: how it is read, compared and applied."""
