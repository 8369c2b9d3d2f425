"""The processes around uvicorn: arguments, sockets, embedded store and workers, from their start to their end."""
