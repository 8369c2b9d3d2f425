"""What operators ask of the store; no request of a client needs it."""
