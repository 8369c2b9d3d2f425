"""Read `./scripts/admin export` and write lines for `user import` that disable all users whose hash is not argon2id.

Run it with the Python of the checkout, which has PyYAML:

    ./scripts/admin export | .venv/bin/python examples/move_in/old_hashes.py > disable.jsonl
"""

import json
import sys

import yaml

for user in yaml.safe_load(sys.stdin)["users"]:
    if not user.get("password_hash", "$argon2id$").startswith("$argon2id$"):
        sys.stdout.write(json.dumps({"username": user["username"], "disabled": True}) + "\n")
