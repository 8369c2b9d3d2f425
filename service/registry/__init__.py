"""The registry of clients, users and realms: each worker's cache, the editor, and the seed file."""
