"""Browser sessions, and the authorization requests awaiting a decision there."""
