"""The seed file: realms, clients and users in YAML, checked as a whole before anything of it is used.

Field names are those of RFC 7591 where it has one. Every mistake is found at once and named with its place, an unknown
or repeated key included.

Clauses: RFC 6749 §2, §3.1.2, §3.1.2.2, RFC 7591 §2, SPEC §2.3, §5.5
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

import msgspec
import yaml

from service.hashing import MAX_PASSWORD_CHARACTERS, is_password_hash, is_secret_hash
from service.protocol.client import AUTHORIZATION_CODE, GRANT_TYPES, MAX_CLIENT_ID_CHARACTERS
from service.protocol.errors import InvalidScope
from service.protocol.grammar import SCOPE_TOKEN, is_unicode_without_line_ends, is_vschar
from service.protocol.scope import MAIN_REALM, ROLES, Scope, parse_scope
from service.protocol.uri import find_server_mistake, find_uri_mistake
from service.protocol.user import MAX_USERNAME_CHARACTERS, identify_user

_REALM_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,31}")
_YAML_WORDS: Final = {
    "array": "a list",
    "object": "a mapping",
    "str": "text",
    "str | null": "text",
    "int": "a number",
    "float": "a number",
    "bool": "true or false",
    "null": "nothing",
}
_NOBODY: Final = frozenset(
    {"iss", "aud", "azp", "client_id", "scope", "token_type", "active", "acr", "amr"}
    | {"exp", "iat", "nbf", "auth_time", "jti", "nonce", "sid", "at_hash", "c_hash"}
)
"""Claims that are the same for everybody, or others at each login: all users would be one, or each of them many."""

_SECTIONS: Final = ("realms", "clients", "users")

GrantType = Literal["authorization_code", "password", "refresh_token"]
Role = Literal["enduser", "organisation", "admin", "partner", "device", "orderer"]
Introspect = bool | Literal["all"]

_CHOICES: Final[dict[object, tuple[str, ...]]] = {
    Role: ROLES,
    GrantType: GRANT_TYPES,
    Introspect: ("true", "false", "all"),
}


class RealmEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An external organisation's login server."""

    client_id: str
    client_secret: str = ""
    name: str = ""
    issuer: str = ""
    authorization_endpoint: str = ""
    token_endpoint: str = ""
    introspection_endpoint: str = ""
    userinfo_endpoint: str = ""
    jwks_uri: str = ""
    scope: str = ""
    username_claim: str = "sub"
    default_roles: tuple[Role, ...] = ()


class ClientEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    client_id: str
    client_secret: str | None = None
    client_secret_hash: str | None = None
    client_name: str = ""
    redirect_uris: tuple[str, ...] = ()
    grant_types: tuple[GrantType, ...] = ()
    scope: str = ""
    default_scope: str = ""
    require_pkce: bool = False
    introspect: Introspect = False


class UserEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    username: str
    realm: str = MAIN_REALM
    password: str | None = None
    password_hash: str | None = None
    roles: tuple[Role, ...] = ()
    name: str = ""


class Seed(msgspec.Struct, frozen=True, kw_only=True):
    """A seed file without a mistake. `text` is the file as it was read."""

    realms: dict[str, RealmEntry] = {}
    clients: tuple[ClientEntry, ...] = ()
    users: tuple[UserEntry, ...] = ()
    text: bytes = b""


class BadSeed(Exception):
    """`mistakes` are lines of the form `clients[2].redirect_uris[0]: what is wrong and what was expected`."""

    def __init__(self, mistakes: tuple[str, ...], file: Path | None = None) -> None:
        super().__init__("; ".join(mistakes))
        self.mistakes = mistakes
        self.file = file


def load_seed(path: Path) -> Seed:
    """Raises BadSeed with every mistake in the file."""
    try:
        return parse_seed(path.read_bytes())
    except OSError as error:
        raise BadSeed((f"the file cannot be read: {error.strerror}",), path) from None
    except BadSeed as refusal:
        raise BadSeed(refusal.mistakes, path) from None


def parse_seed(text: bytes) -> Seed:
    """Raises BadSeed with every mistake in the text."""
    reader = _Reader()
    tree = reader.read_yaml(text)
    seed = reader.read_seed(tree, text)
    if reader.mistakes:
        raise BadSeed(tuple(f"{place}: {mistake}" for place, mistake in reader.mistakes.items()))
    return seed


Entry = TypeVar("Entry", RealmEntry, ClientEntry, UserEntry)


class _Reader:
    """Walks the tree once, notes each mistake with its place, and goes on.

    A value that cannot be used is noted and read as if it were absent, so that the rest of its entry is still checked;
    the first mistake at a place stands for all that follow from it there.
    """

    def __init__(self) -> None:
        self.mistakes: dict[str, str] = {}

    def note(self, place: str, mistake: str) -> None:
        self.mistakes.setdefault(place, mistake)

    def read_yaml(self, text: bytes) -> Any:
        """YAML's last-one-wins would hide a repeated key; here it is a mistake."""
        try:
            loader = yaml.CSafeLoader(text)
            try:
                node = loader.get_single_node()
                for place in _find_repeated_keys(node, "", set()):
                    self.note(place, "this key stands twice in its mapping")
                return None if node is None else loader.construct_document(node)
            finally:
                loader.dispose()
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            raise BadSeed((_describe_yaml_error(error),)) from None

    def read_seed(self, tree: Any, text: bytes) -> Seed:
        if not isinstance(tree, dict):
            raise BadSeed(("the file: expected a mapping with the keys realms, clients and users",))
        for name in tree:
            if name not in _SECTIONS:
                self.note(str(name), f"unknown key; known are {', '.join(_SECTIONS)}")
        realms = dict(self._read_realms(tree.get("realms")))
        clients = tuple(self._read_clients(tree.get("clients")))
        users = tuple(self._read_users(tree.get("users"), {MAIN_REALM, *realms}))
        return Seed(realms=realms, clients=clients, users=users, text=text)

    def _read_realms(self, section: Any) -> Iterator[tuple[str, RealmEntry]]:
        if not isinstance(section, dict | None):
            self.note("realms", "expected a mapping from realm names to their login servers")
            return
        for name, tree in (section or {}).items():
            place = f"realms.{name}"
            if name == MAIN_REALM:
                self.note(place, "the realm main is the service's own and is not configured")
            elif not (isinstance(name, str) and _REALM_NAME.fullmatch(name)):
                self.note(place, "expected a name of lower-case letters, digits, - and _, a letter first")
            entry = self._read_entry(place, tree, RealmEntry)
            if entry is not None:
                self._check_realm(place, entry)
                yield str(name), entry

    def _read_clients(self, section: Any) -> Iterator[ClientEntry]:
        seen: dict[str, str] = {}
        for place, tree in self._read_list("clients", section):
            entry = self._read_entry(place, tree, ClientEntry)
            if entry is not None:
                self._check_unique(f"{place}.client_id", entry.client_id, seen)
                self._check_client(place, entry)
                yield entry

    def _read_users(self, section: Any, realms: set[str]) -> Iterator[UserEntry]:
        seen: dict[str, str] = {}
        for place, tree in self._read_list("users", section):
            entry = self._read_entry(place, tree, UserEntry)
            if entry is not None:
                if entry.realm not in realms:
                    self.note(f"{place}.realm", f"unknown realm; this file has {', '.join(sorted(realms))}")
                self._check_user(place, entry)
                subject = identify_user(entry.realm, entry.username).subject if self._is_text(entry.username) else ""
                self._check_unique(f"{place}.username", subject, seen)
                yield entry

    def _read_list(self, name: str, section: Any) -> list[tuple[str, Any]]:
        if not isinstance(section, list | None):
            self.note(name, "expected a list")
            return []
        return [(f"{name}[{index}]", tree) for index, tree in enumerate(section or [])]

    def _read_entry(self, place: str, tree: Any, entry_type: type[Entry]) -> Entry | None:
        if not isinstance(tree, dict):
            self.note(place, "expected a mapping")
            return None
        fields = {field.name: field for field in msgspec.structs.fields(entry_type)}
        for name in tree:
            if name not in fields:
                self.note(f"{place}.{name}", f"unknown key; known are {', '.join(fields)}")
        values: dict[str, Any] = {name: "" for name, field in fields.items() if field.required}
        for name, field in fields.items():
            if name in tree:
                values |= self._read_value(name, f"{place}.{name}", tree[name], field.type)
            elif field.required:
                self.note(f"{place}.{name}", "is missing")
        return entry_type(**values)

    def _read_value(self, name: str, place: str, tree: Any, value_type: Any) -> dict[str, Any]:
        """The field by its name; nothing where it cannot be used."""
        if getattr(value_type, "__origin__", None) is tuple and isinstance(tree, list):
            item_type = value_type.__args__[0]
            items = [self._read_value(name, f"{place}[{i}]", item, item_type) for i, item in enumerate(tree)]
            return {name: tuple(item.get(name, "") for item in items)}
        try:
            return {name: msgspec.convert(tree, value_type)}
        except msgspec.ValidationError as error:
            known = _CHOICES.get(value_type)
            self.note(place, f"expected one of {', '.join(known)}" if known else _describe_conversion(error))
            return {}

    def _check_unique(self, place: str, name: str, seen: dict[str, str]) -> None:
        if name in seen:
            self.note(place, f"stands at {seen[name]} already")
        elif name:
            seen[name] = place

    def _check_realm(self, place: str, entry: RealmEntry) -> None:
        sources = ("introspection_endpoint", "userinfo_endpoint", "jwks_uri")
        needed = ("authorization_endpoint", "token_endpoint")
        for name in ("issuer", *needed, *sources):
            address = getattr(entry, name)
            mistake = find_server_mistake(address) if address else None
            if mistake is not None:
                self.note(f"{place}.{name}", mistake)
        if "?" in entry.issuer:
            self.note(f"{place}.issuer", "expected an address without a query")
        if "/.well-known/" in entry.issuer:
            self.note(f"{place}.issuer", "expected what comes before /.well-known/")
        self._check_identity_there(place, entry)
        if entry.issuer:
            return
        for name in needed:
            if not getattr(entry, name):
                self.note(f"{place}.{name}", "is missing, and there is no issuer to ask for it")
        if not any(getattr(entry, name) for name in sources):
            self.note(place, f"one of {', '.join(sources)} is needed to learn who logged in, or an issuer")
        elif not (entry.introspection_endpoint or entry.userinfo_endpoint):
            self.note(f"{place}.issuer", "is missing: an ID token is believed from one issuer only")

    def _check_identity_there(self, place: str, entry: RealmEntry) -> None:
        """Clauses: RFC 6749 §3.3, Appendix A.1, A.2"""
        if not is_vschar(entry.client_id):
            self.note(f"{place}.client_id", "expected printable ASCII characters")
        if entry.client_secret and not is_vschar(entry.client_secret):
            self.note(f"{place}.client_secret", "expected printable ASCII characters")
        items = entry.scope.split(" ") if entry.scope else []
        if not all(map(SCOPE_TOKEN.fullmatch, items)) or "," in entry.scope:
            self.note(f"{place}.scope", "expected items of printable ASCII characters, separated by single spaces")
        if any(item != "openid" and item.lower() == "openid" for item in items):
            self.note(f"{place}.scope", "openid is written in small letters")
        if not self._is_text(entry.username_claim):
            self.note(f"{place}.username_claim", "expected the name of a claim, in one line")
        if entry.username_claim in _NOBODY:
            self.note(f"{place}.username_claim", "expected a claim that names a user, and always by the same name")
        if entry.name and not self._is_text(entry.name):
            self.note(f"{place}.name", "expected text in one line")

    def _check_client(self, place: str, entry: ClientEntry) -> None:
        if not is_vschar(entry.client_id) or len(entry.client_id) > MAX_CLIENT_ID_CHARACTERS:
            self.note(f"{place}.client_id", f"expected 1 to {MAX_CLIENT_ID_CHARACTERS} printable ASCII characters")
        self._check_client_secret(place, entry)
        for index, redirect_uri in enumerate(entry.redirect_uris):
            mistake = find_uri_mistake(redirect_uri)
            if mistake is not None:
                self.note(f"{place}.redirect_uris[{index}]", mistake)
        if AUTHORIZATION_CODE in entry.grant_types and not entry.redirect_uris:
            self.note(f"{place}.redirect_uris", "the grant authorization_code needs at least one")
        allowed = self._check_scope(f"{place}.scope", entry.scope)
        default = self._check_scope(f"{place}.default_scope", entry.default_scope)
        if f"{place}.scope" not in self.mistakes and not allowed.covers(default):
            self.note(f"{place}.default_scope", "goes beyond the client's scope")
        if len(default.realms) > 1:
            self.note(f"{place}.default_scope", "expected at most one realm")

    def _check_client_secret(self, place: str, entry: ClientEntry) -> None:
        secret, secret_hash = entry.client_secret, entry.client_secret_hash
        if secret is not None and secret_hash is not None:
            self.note(f"{place}.client_secret_hash", "expected client_secret or client_secret_hash, not both")
        if secret is not None and not (is_vschar(secret) and len(secret) <= MAX_PASSWORD_CHARACTERS):
            self.note(f"{place}.client_secret", f"expected 1 to {MAX_PASSWORD_CHARACTERS} printable ASCII characters")
        if secret_hash is not None and not is_secret_hash(secret_hash):
            self.note(f"{place}.client_secret_hash", "expected an argon2 hash in PHC form, or sha256: with its digest")
        if entry.introspect and secret is None and secret_hash is None:
            self.note(f"{place}.introspect", "only a client with a secret may introspect")

    def _check_scope(self, place: str, text: str) -> Scope:
        try:
            return parse_scope(text) if text else Scope()
        except InvalidScope as error:
            self.note(place, error.description)
            return Scope()

    def _check_user(self, place: str, entry: UserEntry) -> None:
        if not self._is_text(entry.username) or len(entry.username) > MAX_USERNAME_CHARACTERS:
            self.note(f"{place}.username", f"expected 1 to {MAX_USERNAME_CHARACTERS} characters in one line")
        password, password_hash = entry.password, entry.password_hash
        if password is not None and password_hash is not None:
            self.note(f"{place}.password_hash", "expected password or password_hash, not both")
        if entry.realm == MAIN_REALM and password is None and password_hash is None:
            self.note(f"{place}.password", "is missing (or password_hash)")
        is_external = entry.realm != MAIN_REALM and f"{place}.realm" not in self.mistakes
        if is_external and (password is not None or password_hash is not None):
            self.note(f"{place}.password", f"the realm {entry.realm} checks passwords itself")
        if password is not None and not (self._is_text(password) and len(password) <= MAX_PASSWORD_CHARACTERS):
            self.note(f"{place}.password", f"expected 1 to {MAX_PASSWORD_CHARACTERS} characters in one line")
        if password_hash is not None and not is_password_hash(password_hash):
            self.note(f"{place}.password_hash", "expected an argon2 hash in PHC form")

    def _is_text(self, text: str) -> bool:
        return is_unicode_without_line_ends(text)


def _find_repeated_keys(node: yaml.Node | None, place: str, walked: set[int]) -> Iterator[str]:
    """The places of keys that stand twice; an alias is looked at where its anchor stands."""
    if id(node) in walked:
        return
    walked.add(id(node))
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            name = key.value if isinstance(key, yaml.ScalarNode) else "?"
            inner = f"{place}.{name}".removeprefix(".")
            if name in seen:
                yield inner
            seen.add(name)
            yield from _find_repeated_keys(value, inner, walked)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            yield from _find_repeated_keys(value, f"{place}[{index}]", walked)


def _describe_yaml_error(error: Exception) -> str:
    if isinstance(error, yaml.reader.ReaderError):
        return "the file: is not text in UTF-8"
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        return f"line {mark.line + 1}, column {mark.column + 1}: {error.problem}"
    return f"the file: {'is nested too deeply' if isinstance(error, RecursionError) else error}"


def _describe_conversion(error: msgspec.ValidationError) -> str:
    """msgspec names types as JSON does; a person who writes YAML calls them otherwise."""
    words = str(error).partition(" - at ")[0].lower()
    for name, word in _YAML_WORDS.items():
        words = words.replace(f"`{name}`", word)
    return words.replace("`", "")
