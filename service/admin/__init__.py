"""The administration console behind `scripts/admin`: clients, users, sessions and the state of the store."""
