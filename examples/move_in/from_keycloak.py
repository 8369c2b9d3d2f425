"""Turn the users of a Keycloak realm into lines for `./scripts/admin user import`.

    kc.sh export --realm shop --users realm_file --file shop.json
    python3 from_keycloak.py < shop.json > users.jsonl

The address becomes the user name, or Keycloak's user name if a user has no address. Keycloak's id stays. Accounts that
cannot move are named on stderr, with the reason. Service accounts are left out.
"""

from __future__ import annotations

import json
import sys
from base64 import b64decode, b64encode

ROLES = ["enduser"]
DIGEST_BYTES = {"pbkdf2": 20, "pbkdf2-sha256": 32, "pbkdf2-sha512": 64}


def convert(credential: dict[str, str]) -> str | None:
    """Return the hash in a form that the service takes, or None if it takes none of this algorithm."""
    secret, data = json.loads(credential["secretData"]), json.loads(credential["credentialData"])
    algorithm, iterations, signs, size = data["algorithm"], data["hashIterations"], b"./", None
    if algorithm == "argon2":
        more = {name: values[0] for name, values in data["additionalParameters"].items()}
        version = {"1.0": 16, "1.3": 19}[more["version"]]
        head = f"argon2{more['type']}$v={version}$m={more['memory']},t={iterations},p={more['parallelism']}"
        signs = b"+/"
    elif algorithm in DIGEST_BYTES:
        # If the derived key is longer than the digest, its first bytes are the hash.
        head, size = f"{algorithm}${iterations}", DIGEST_BYTES[algorithm]
    else:
        return None
    parts = b64decode(secret["salt"]), b64decode(secret["value"])[:size]
    return "$".join(["", head, *(b64encode(part, signs).decode().rstrip("=") for part in parts)])


try:
    realm = json.load(sys.stdin.buffer)
except ValueError as error:
    sys.exit(f"expected the export of a realm: {error}")
if not isinstance(realm, dict) or "users" not in realm:
    sys.exit("expected one realm with its users; export it with --realm and --users realm_file")
for user in realm["users"]:
    if "serviceAccountClientId" in user:
        continue
    username = user.get("email") or user["username"]
    # Credentials of other types are second factors and passkeys.
    passwords = [each for each in user.get("credentials", ()) if each["type"] == "password"]
    password_hash = convert(passwords[0]) if passwords and "secretData" in passwords[0] else None
    if password_hash is None:
        data = passwords and json.loads(passwords[0].get("credentialData", '{"algorithm": "of an old Keycloak"}'))
        obstacle = f"the hash is {data['algorithm']}" if data else "no password"
        sys.stderr.write(f"left out: {username}: {obstacle}\n")
        continue
    name = f"{user.get('firstName', '')} {user.get('lastName', '')}".strip()
    line = {"username": username, "id": user["id"], "password_hash": password_hash, "roles": ROLES, "name": name}
    sys.stdout.write(json.dumps(line if user["enabled"] else line | {"disabled": True}) + "\n")
