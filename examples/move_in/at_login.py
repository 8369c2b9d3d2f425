"""Move a user whose password hash is not accepted, at the user's next login on the old system's page."""

from urllib.error import HTTPError

from argon2 import PasswordHasher  # pip install argon2-cffi

from examples.back_end import send


def move(username: str, password: str, old_id: str) -> None:
    """Create the user here. Call this after the old login page has checked the password."""
    # These are the costs of the service's own hashes. It rejects a short `password`, but not the hash of one.
    body = {"id": old_id, "password_hash": PasswordHasher(2, 19456, 1).hash(password), "roles": ["enduser"]}
    try:
        send("PUT", username, body, **{"If-None-Match": "*"})
    except HTTPError as error:
        if error.code != 412:  # the user has moved already
            raise
