"""All key names in Redis, with the type, the lifetime and the writer of each.

| key                             | type   | lives                                | written by                        |
| ------------------------------- | ------ | ------------------------------------ | --------------------------------- |
| access:{shard}:<token digest>   | string | the access token's lifetime          | start, redeem, spend              |
| family:{shard}:<family digest>  | string | until family and tokens end          | start, redeem, spend              |
| ended:{shard}:<family digest>   | string | a day from the family's end          | end_family, spend, start, redeem …|
| code:{shard}:<code digest>      | string | the code's lifetime                  | allow_consent                     |
| redeemed:{shard}:<code digest>  | string | ten minutes, or a code's longer life | redeem_authorization_code         |
| external:{shard}:<digest>       | string | ten minutes                          | single_use                        |
| logout:{shard}:<digest>         | string | twenty minutes                       | single_use                        |
| browser:{shard}:<digest>        | string | the browser session's lifetime       | start_browser_session             |
| consent:{shard}:<digest>        | string | half an hour, or less if it ends      | hold_consent, allow, deny         |
| index:{shard}:<user>            | zset   | as its longest member, and more      | start, redeem, spend, hold, allow |
| revoked:{shard}:<user>          | zset   | until revokeAll ends, or its lifetime| revoke_all                        |
| mark:{shard}:<user>[:sid]       | string | longer than what it covers; sid: 15 m| revoke_all                        |
| login:{shard}:<user>[:from]     | string | its window, or less                  | settle_attempt                    |
| login:{shard}:<user>:origins    | hash   | as the longest-lived of its counters | settle_attempt                    |
| address:{from}:…                | string | its window, or less                  | settle_attempt                    |
| lease:<one of these counters>   | string | ten seconds                          | reserve_attempt, settle_attempt   |
| user:{shard}:<user>             | hash   | for good                             | registry, put_user, remove_user   |
| id:{shard}:<digest of the id>   | string | for good                             | user_ids                          |
| seed:{shard}                    | hash   | for good                             | registry, put_user, remove_user   |
| client:{registry}:<client_id>   | string | for good                             | put_client, delete_client         |
| realm:{registry}:<realm>        | string | for good                             | put_realm                         |
| origin:{registry}:<origin>      | set    | while a client has this origin       | put_client, delete_client         |
| seed:{registry}                 | hash   | for good                             | registry, put_client, put_realm … |
| secret_keys:{registry}          | set    | for good                             | register_secret_keys, secret_keys |
| pending_scans:{registry}        | hash   | while a client's scan is pending     | put_client, delete_client         |
| pending_realm_scans:{registry}  | hash   | while a realm's scan is pending      | put_realm                         |
| pending_revocations:{registry}  | set    | while a user's revocation is pending | registry                          |
| lock:{registry}                 | string | ten seconds, renewed                 | registry                          |
| lock:{registry}:seed            | string | ten seconds, renewed                 | registry                          |
| lock:{registry}:scan            | string | ten seconds, renewed                 | registry                          |
| lock:{registry}:everybody       | string | ten seconds, renewed                 | registry                          |
| probe:{registry}                | string | ten seconds                          | probe_store                       |
| fence:{shard}                   | string | a day                                | leave_fence                       |
| events:{registry}:users         | stream | thirty days after the last event     | append_events                     |
| events:{registry}:operators     | stream | thirty days after the last event     | append_events                     |
| events:{registry}:programs      | stream | thirty days after the last event     | append_events                     |
| events:{registry}:unauthenticated | stream | thirty days after the last event   | append_events                     |

"And more" is at most a tenth of the lifetime of a refresh token, and at most a day, so that not every refresh must
write the index. A client may have lifetimes of its own; an index and a mark live as long as the longest demands.

Every account of Redis can learn the names of keys, so `from` is a keyed digest of the caller's network or browser.

`<user>` is the digest of a user's realm and name.

The text in braces is the hash tag: keys that share it lie in one Redis Cluster slot. A shard is the first 12 bits of
the user's digest. All keys of one user share it, and each of the user's tokens names it. The shard of a login that
returned from an identity provider (`external`) follows from the login's state, not from its user. Scripts that derive
keys declare one more key, `guard:{…}`, which is never written.
"""

from __future__ import annotations

import hashlib
from base64 import urlsafe_b64encode
from functools import partial
from typing import Final

from service.protocol.user import UserIdentity

REGISTRY_SHARD: Final = "registry"

LASTING_KINDS: Final = frozenset(
    {"user", "id", "seed", "client", "realm", "origin", "secret_keys"}
    | {"pending_scans", "pending_realm_scans", "pending_revocations"}
)
"""The kinds of keys that have no time to live."""

EXPIRING_KINDS: Final = frozenset(
    {"access", "family", "ended", "code", "redeemed", "external", "logout", "browser", "consent", "index", "revoked"}
    | {"mark", "login", "address", "lease", "lock", "probe", "fence", "events"}
)
_KINDS: Final = LASTING_KINDS | EXPIRING_KINDS


def get_kind(key: str) -> str:
    """Return the kind of a key, which is its first word: access, family, index, …"""
    return key.partition(":")[0]


def is_foreign_key(key: str) -> bool:
    """Return True if another program wrote this key. Each key of the service has a known kind and a hash tag."""
    return "{" not in key or get_kind(key) not in _KINDS


def fence_key(shard: str) -> str:
    return f"fence:{{{shard}}}"


def make_key(kind: str, shard: str, name: str) -> str:
    """Return the key of a record that has a digest as its name."""
    return f"{kind}:{{{shard}}}:{name}"


family_key: Final = partial(make_key, "family")
ended_key: Final = partial(make_key, "ended")
code_key: Final = partial(make_key, "code")
redeemed_key: Final = partial(make_key, "redeemed")
browser_key: Final = partial(make_key, "browser")
consent_key: Final = partial(make_key, "consent")
index_key: Final = partial(make_key, "index")
revoked_key: Final = partial(make_key, "revoked")


def mark_key(shard: str, user_digest: str, sid: str = "") -> str:
    """Return the key of the mark of a revokeAll, or of the mark of one login at an identity provider."""
    return make_key("mark", shard, f"{user_digest}:{sid}" if sid else user_digest)


def login_key(identity: UserIdentity, origin: str = "") -> str:
    """Return the key of a user name's counter: over all origins, or for one origin such as a network or a browser.

    The origin is in angle brackets until `Attempts` replaces it by a keyed digest.
    """
    suffix = f":<{origin}>" if origin else ""
    return f"login:{{{identity.shard}}}:{identity.digest}{suffix}"


def origins_key(identity: UserIdentity) -> str:
    """Return the key of the hash that has a user name's counters, each with its limit and origin."""
    return f"{login_key(identity)}:origins"


def address_key(purpose: str, network: str, name: str = "", *, within_it: str = "") -> str:
    """Return the key of a network's counter for one purpose, optionally combined with a name such as a client_id.

    `within_it` is a smaller network inside `network`. The counter is then its own, under the hash tag of `network`.
    Both are in angle brackets until `Attempts` replaces them by keyed digests.
    """
    narrowed = f":in-<{within_it}>" if within_it not in ("", network) else ""
    suffix = f":{hashlib.sha256(name.encode()).hexdigest()[:24]}" if name else ""
    return f"address:{{<{network}>}}:{purpose}{narrowed}{suffix}"


def user_key(identity: UserIdentity) -> str:
    return f"user:{{{identity.shard}}}:{identity.digest}"


def id_shard(user_id: str) -> str:
    return hashlib.sha256(user_id.encode()).hexdigest()[:3]


def id_key(user_id: str) -> str:
    """Return the key that leads from a user's id to the digest of the user's name. It lies in a shard of its own."""
    digest = hashlib.sha256(user_id.encode()).digest()
    name = urlsafe_b64encode(digest[:16]).decode().rstrip("=")
    return make_key("id", digest[:2].hex()[:3], name)


def user_seed_key(shard: str) -> str:
    return f"seed:{{{shard}}}"


def registry_key(kind: str, name: str = "") -> str:
    """Return the key of a record that is not a user's.

    `kind` is client, realm, origin, seed, secret_keys, events, pending_…, lock or probe.
    """
    return f"{kind}:{{{REGISTRY_SHARD}}}" + (f":{name}" if name else "")
