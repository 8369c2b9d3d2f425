"""Records of clients, realms and users, and the entries of a seed file as they were last applied."""
