"""The start of the service as processes: arguments, port, store, workers, and the same backwards at its end."""
