"""Turn the accounts of a Django project into lines for `./scripts/admin user import`.

    python manage.py dumpdata auth.user | python3 from_django.py > users.jsonl

Give `dumpdata` your own user model if you have one. The address becomes the user name, and the primary key the id.
Accounts that cannot move are named on stderr, with the reason.
"""

from __future__ import annotations

import json
import sys
from base64 import b64decode, b64encode

ROLES = ["enduser"]


def convert(password: str) -> str | None:
    """Return the hash in a form that the service takes, or None if it takes none of this kind."""
    match password.split("$"):
        case ["pbkdf2_sha256" | "bcrypt_sha256", *_]:
            return password
        case ["bcrypt", "", *rest] | ["argon2", *rest]:
            return "$".join(["", *rest])
        case ["pbkdf2_sha1", iterations, salt, key]:
            return f"$pbkdf2${iterations}${encode(salt.encode(), b'./')}${encode(b64decode(key), b'./')}"
        case ["scrypt", cost, salt, block_size, lanes, key]:
            settings = f"ln={int(cost).bit_length() - 1},r={block_size},p={lanes}"
            return f"$scrypt${settings}${encode(salt.encode())}${encode(b64decode(key)[:32])}"
    return None


def encode(data: bytes, signs: bytes = b"+/") -> str:
    return b64encode(data, signs).decode().rstrip("=")


def find_obstacle(username: str | None, password: str) -> str | None:
    """Return the reason for which an account cannot move, or None."""
    if not username:
        return "no address"
    if password[:1] in ("", "!"):
        return "no password"
    kind, sign, _ = password.partition("$")
    return None if convert(password) else f"the hash is {kind}$" if sign else "the hash is unsalted"


try:
    accounts = [each for each in json.load(sys.stdin.buffer) if "password" in each["fields"]]
except ValueError as error:
    sys.exit(f"expected what `manage.py dumpdata` writes: {error}")
for account in accounts:
    fields, pk = account["fields"], account.get("pk")
    username, password = fields.get("email"), fields["password"]
    if obstacle := "no primary key" if pk is None else find_obstacle(username, password):
        sys.stderr.write(f"left out: {username or pk}: {obstacle}\n")
        continue
    name = f"{fields.get('first_name', '')} {fields.get('last_name', '')}".strip()
    user = {"username": username, "id": str(pk), "password_hash": convert(password), "roles": ROLES}
    user |= {"name": name} if fields.get("is_active", True) else {"name": name, "disabled": True}
    sys.stdout.write(json.dumps(user) + "\n")
