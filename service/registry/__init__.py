"""Who is registered: the seed file's schema, its loading into Redis, and each worker's cache of clients."""
