"""The seed file: realms, clients and users in YAML, checked as a whole before anything of it is used.

Field names are those of RFC 7591 where it has one. Every mistake is found at once and named with its place, an unknown
or repeated key included.

Clauses: RFC 6749 §2, §3.1.2, §3.1.2.2, RFC 7591 §2, SPEC §2.3, §5.5
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Literal, TypeVar
from urllib.parse import urlsplit

import msgspec
import yaml

from service.hashing import MAX_PASSWORD_CHARACTERS, is_password_hash, is_secret_hash
from service.protocol.client import AUTHORIZATION_CODE, GRANT_TYPES
from service.protocol.errors import InvalidScope
from service.protocol.grammar import is_unicode_without_line_ends, is_vschar
from service.protocol.scope import MAIN_REALM, ROLES, Scope, parse_scope
from service.protocol.user import MAX_USERNAME_CHARACTERS, identify_user

_FORBIDDEN_SCHEMES: Final = ("javascript", "data", "file", "vbscript", "about", "blob")
_REALM_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,31}")
_SECTIONS: Final = ("realms", "clients", "users")

GrantType = Literal["authorization_code", "password", "refresh_token"]
Role = Literal["enduser", "organisation", "admin", "partner", "device", "orderer"]


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
    introspect: bool | Literal["all"] = False


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

    def __init__(self, mistakes: tuple[str, ...]) -> None:
        super().__init__("\n".join(mistakes))
        self.mistakes = mistakes


def load_seed(path: Path) -> Seed:
    """Raises BadSeed with every mistake in the file."""
    try:
        text = path.read_bytes()
    except OSError as error:
        raise BadSeed((f"{path}: cannot be read: {error.strerror}",)) from None
    return parse_seed(text)


def parse_seed(text: bytes) -> Seed:
    """Raises BadSeed with every mistake in the text."""
    reader = _Reader()
    tree = reader.read_yaml(text)
    seed = reader.read_seed(tree, text)
    if reader.mistakes:
        raise BadSeed(tuple(reader.mistakes))
    return seed


class _UniqueKeyLoader(yaml.CSafeLoader):
    """YAML's last-one-wins would hide a repeated key; here it is remembered as a mistake."""

    def __init__(self, stream: bytes) -> None:
        super().__init__(stream)
        self.repeated: list[str] = []

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        names = Counter(key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode))
        line = node.start_mark.line + 1
        repeated = [name for name in names if names[name] > 1]
        self.repeated += [f"key {name!r} stands twice in the mapping at line {line}" for name in repeated]
        return super().construct_mapping(node, deep)


Entry = TypeVar("Entry", RealmEntry, ClientEntry, UserEntry)


class _Reader:
    """Walks the tree once, notes each mistake with its place, and goes on."""

    def __init__(self) -> None:
        self.mistakes: list[str] = []

    def note(self, place: str, mistake: str) -> None:
        self.mistakes.append(f"{place}: {mistake}")

    def read_yaml(self, text: bytes) -> Any:
        try:
            loader = _UniqueKeyLoader(text)
            try:
                tree = loader.get_single_data()
            finally:
                loader.dispose()
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            raise BadSeed((_describe_yaml_error(error),)) from None
        self.mistakes += loader.repeated
        return tree

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
        """Each field by itself, so that one mistake does not hide the next; None where any field has one."""
        if not isinstance(tree, dict):
            self.note(place, "expected a mapping")
            return None
        before = len(self.mistakes)
        fields = {field.name: field for field in msgspec.structs.fields(entry_type)}
        for name in tree:
            if name not in fields:
                self.note(f"{place}.{name}", f"unknown key; known are {', '.join(fields)}")
        values = {}
        for name, field in fields.items():
            if name in tree:
                values[name] = self._read_value(f"{place}.{name}", tree[name], field.type)
            elif field.required:
                self.note(f"{place}.{name}", "is missing")
        return entry_type(**values) if len(self.mistakes) == before else None

    def _read_value(self, place: str, tree: Any, value_type: Any) -> Any:
        if value_type in (tuple[Role, ...], tuple[GrantType, ...], tuple[str, ...]) and isinstance(tree, list):
            item_type = value_type.__args__[0]
            return tuple(self._read_value(f"{place}[{index}]", item, item_type) for index, item in enumerate(tree))
        try:
            return msgspec.convert(tree, value_type)
        except msgspec.ValidationError as error:
            known = {Role: ROLES, GrantType: GRANT_TYPES}.get(value_type)
            self.note(place, f"expected one of {', '.join(known)}" if known else _describe_conversion(error))
            return None

    def _check_unique(self, place: str, name: str, seen: dict[str, str]) -> None:
        if name in seen:
            self.note(place, f"stands at {seen[name]} already")
        elif name:
            seen[name] = place

    def _check_realm(self, place: str, entry: RealmEntry) -> None:
        for name in ("issuer", "authorization_endpoint", "token_endpoint"):
            self._check_server_url(f"{place}.{name}", getattr(entry, name))
        identity = ("introspection_endpoint", "userinfo_endpoint", "jwks_uri")
        for name in identity:
            self._check_server_url(f"{place}.{name}", getattr(entry, name))
        if entry.issuer:
            return
        for name in ("authorization_endpoint", "token_endpoint"):
            if not getattr(entry, name):
                self.note(f"{place}.{name}", "is missing, and there is no issuer to ask for it")
        if not any(getattr(entry, name) for name in identity):
            self.note(place, f"one of {', '.join(identity)} is needed to learn who logged in, or an issuer")

    def _check_server_url(self, place: str, text: str) -> None:
        if not text:
            return
        mistake = find_uri_mistake(text)
        if mistake is None:
            parts = urlsplit(text)
            is_local = parts.hostname in ("127.0.0.1", "::1", "localhost")
            if parts.scheme != "https" and not (parts.scheme == "http" and is_local):
                mistake = "expected https (http only on this machine)"
        if mistake is not None:
            self.note(place, mistake)

    def _check_client(self, place: str, entry: ClientEntry) -> None:
        if not is_vschar(entry.client_id):
            self.note(f"{place}.client_id", "expected one or more printable ASCII characters")
        self._check_client_secret(place, entry)
        for index, redirect_uri in enumerate(entry.redirect_uris):
            mistake = find_uri_mistake(redirect_uri)
            if mistake is not None:
                self.note(f"{place}.redirect_uris[{index}]", mistake)
        if AUTHORIZATION_CODE in entry.grant_types and not entry.redirect_uris:
            self.note(f"{place}.redirect_uris", "the grant authorization_code needs at least one")
        allowed = self._check_scope(f"{place}.scope", entry.scope)
        default = self._check_scope(f"{place}.default_scope", entry.default_scope)
        if not allowed.covers(default):
            self.note(f"{place}.default_scope", "goes beyond the client's scope")
        if len(default.realms) > 1:
            self.note(f"{place}.default_scope", "expected at most one realm")

    def _check_client_secret(self, place: str, entry: ClientEntry) -> None:
        secret, secret_hash = entry.client_secret, entry.client_secret_hash
        if secret is not None and secret_hash is not None:
            self.note(f"{place}.client_secret_hash", "expected client_secret or client_secret_hash, not both")
        if secret is not None and not (self._is_text(secret) and len(secret) <= MAX_PASSWORD_CHARACTERS):
            self.note(f"{place}.client_secret", f"expected 1 to {MAX_PASSWORD_CHARACTERS} characters in one line")
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
        if entry.realm != MAIN_REALM and (password is not None or password_hash is not None):
            self.note(f"{place}.password", f"the realm {entry.realm} checks passwords itself")
        if password is not None and not (self._is_text(password) and len(password) <= MAX_PASSWORD_CHARACTERS):
            self.note(f"{place}.password", f"expected 1 to {MAX_PASSWORD_CHARACTERS} characters in one line")
        if password_hash is not None and not is_password_hash(password_hash):
            self.note(f"{place}.password_hash", "expected an argon2 hash in PHC form")

    def _is_text(self, text: str) -> bool:
        return is_unicode_without_line_ends(text)


def find_uri_mistake(text: str) -> str | None:
    """What keeps a text from being an absolute URI that a browser may be sent to; None where nothing does.

    Clauses: RFC 6749 §3.1.2 (absolute, no fragment)
    """
    if not (is_vschar(text) and " " not in text and "\\" not in text):
        return "expected a URI of printable ASCII characters without spaces and backslashes"
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError:
        return "expected a URI with a valid host and port"
    if not parts.scheme:
        return "expected an absolute URI, with its scheme"
    if "#" in text:
        return "expected a URI without a fragment"
    if parts.scheme in _FORBIDDEN_SCHEMES:
        return f"the scheme {parts.scheme} is not allowed"
    if parts.scheme in ("http", "https") and not parts.hostname:
        return "expected a URI with a host"
    if "@" in parts.netloc:
        return "expected a URI without user information"
    return None


def _describe_yaml_error(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    place = f"line {mark.line + 1}, column {mark.column + 1}" if mark else "the file"
    problem = getattr(error, "problem", None) or "is not valid UTF-8 text in YAML"
    return f"{place}: {problem}"


def _describe_conversion(error: msgspec.ValidationError) -> str:
    """msgspec says `Expected `str`, got `int``; written here like the other mistakes."""
    return str(error).replace("`", "").replace("Expected", "expected").replace(" - at $", "")
