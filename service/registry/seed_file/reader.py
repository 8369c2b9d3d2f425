"""The reader of the seed file: realms, clients and users in YAML, checked as a whole before any of it is used.

Field names are those of RFC 7591, if it defines one for the field. All mistakes are reported together, each with its
place. Unknown and repeated keys are mistakes.

Clauses: RFC 6749 §2, §3.1.2, §3.1.2.2, RFC 7591 §2, SPEC §2.3, §5.5
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml
from yaml.constructor import ConstructorError

from service.crypto.password_hashing import is_password_hash, is_secret_hash
from service.protocol.client import AUTHORIZATION_CODE, GRANT_TYPES, MAX_CLIENT_ID_CHARACTERS
from service.protocol.errors import InvalidScope
from service.protocol.grammar import SCOPE_TOKEN, is_unicode_without_line_ends, is_vschar
from service.protocol.scope import MAIN_REALM, ROLES, SCOPE_ITEMS, Scope, parse_scope
from service.protocol.uri import find_server_mistake, find_uri_mistake
from service.protocol.user import (
    EMAIL_CLAIM,
    MAX_PASSWORD_CHARACTERS,
    MAX_USERNAME_CHARACTERS,
    MIN_PASSWORD_CHARACTERS,
    identify_user,
    normalize_username,
)
from service.registry.seed_file import schema
from service.registry.seed_file.schema import BadSeed, ClientEntry, Entry, RealmEntry, Seed, UserEntry

_REALM_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,31}")
_YAML_WORDS: Final = {
    "array": "a list",
    "object": "a mapping",
    "str": "text",
    "str | null": "text",
    "int": "a number",
    "float": "a number",
    "bool": "true or false",
    "bool | null": "true or false",
    "null": "nothing",
}
_NON_IDENTIFYING_CLAIMS: Final = frozenset(
    {"iss", "aud", "azp", "client_id", "scope", "token_type", "active", "acr", "amr"}
    | {"exp", "iat", "nbf", "auth_time", "jti", "nonce", "sid", "at_hash", "c_hash"}
)
"""Claims that do not identify a user.

Some are the same for all users, who would become one user. Others differ at each login, so one user would become many.
"""

_MERGE: Final = "tag:yaml.org,2002:merge"
_TAGS: Final = {
    _MERGE,
    *(
        f"tag:yaml.org,2002:{name}"
        for name in ("null", "bool", "int", "float", "binary", "timestamp", "str", "map", "seq", "value")
    ),
}
"""The types of a seed file."""

_SECTIONS: Final = ("realms", "clients", "users")
_PLACE: Final = re.compile(r"(realms|clients|users)(?:\[([0-9]+)\]|\.|$)")


_CHOICES: Final[dict[object, tuple[str, ...]]] = {
    schema.Role: ROLES,
    schema.GrantType: GRANT_TYPES,
    schema.Introspect: ("true", "false", "all"),
}

_MAX_DEPTH: Final = 100
"""A seed nests entries, lists and mappings: five levels."""


class _Loader(yaml.CSafeLoader):
    """PyYAML's loader, which composes the nodes of one document and makes values of them."""


def read_fingerprint(path: Path) -> bytes:
    """Return the fingerprint of the seed file, without parsing it. Raises BadSeed if the file cannot be read."""
    return _make_fingerprint(_read_file(path))


def load_seed(path: Path, min_password_characters: int) -> Seed:
    """Read the seed file. Raises BadSeed with every mistake in the file."""
    try:
        return parse_seed(_read_file(path), min_password_characters)
    except BadSeed as refusal:
        raise BadSeed(refusal.mistakes, path) from None


def parse_seed(text: bytes, min_password_characters: int = MIN_PASSWORD_CHARACTERS) -> Seed:
    """Parse the text of a seed. Raises BadSeed with every mistake in the text."""
    reader = _Reader(min_password_characters)
    try:
        _check_depth(text)
        seed = reader.read_seed(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise BadSeed((_describe_yaml_error(error),)) from None
    if reader.has_mistakes:
        raise BadSeed(tuple(f"{place}: {mistake}" for place, mistake in reader.list_mistakes()))
    return msgspec.structs.replace(seed, fingerprint=_make_fingerprint(text))


def _read_file(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise BadSeed((f"the file cannot be read: {error.strerror}",), path) from None


def _make_fingerprint(text: bytes) -> bytes:
    return hashlib.sha256(text).digest()


class _Reader:
    """The reader of one file, which notes each mistake with its place and goes on.

    A value that cannot be used is noted and treated as absent, so that the rest of its entry is still checked. The
    first mistake at a place hides all later ones there, which may follow from it.
    """

    def __init__(self, min_password_characters: int) -> None:
        self._min_password_characters = min_password_characters
        self.mistakes: dict[str, str] = {}
        self._repeated: dict[str, str] = {}

    @property
    def has_mistakes(self) -> bool:
        return bool(self.mistakes or self._repeated)

    def list_mistakes(self) -> list[tuple[str, str]]:
        """Return places with their mistakes.

        Repeated keys come first, because another mistake may follow from one. The rest is in the order of the sections.
        """
        others = sorted(self.mistakes.items(), key=lambda item: _get_order(item[0]))
        return list((self._repeated | dict(others) | self._repeated).items())

    def note(self, place: str, mistake: str) -> None:
        self.mistakes.setdefault(place, mistake)

    def read_seed(self, text: bytes) -> Seed:
        loader = _Loader(text)
        try:
            root: Any = loader.get_single_node()
            self._check_node(loader, root, "", set())
            tree = None if root is None else loader.construct_document(root)
        finally:
            loader.dispose()
        if not isinstance(tree, dict):
            raise BadSeed(("the file: expected a mapping with the keys realms, clients and users",))
        for name in tree.keys() - set(_SECTIONS):
            self.note(str(name), f"unknown key; known are {', '.join(_SECTIONS)}")
        realms = dict(self._read_realms(tree.get("realms")))
        clients = tuple(self._read_clients(tree.get("clients")))
        return Seed(realms=realms, clients=clients, users=tuple(self._read_users(tree.get("users"), realms)))

    def _check_node(self, loader: Any, node: Any, place: str, seen: set[int]) -> None:
        """Note each repeated key, of which YAML would silently use the last value. Raises YAMLError for other types.

        The message about an unknown type does not repeat the text, because a password without quotes that begins with !
        is read as a type.
        """
        if node is None or id(node) in seen:  # an alias leads to a node once more
            return
        seen.add(id(node))
        if node.tag not in _TAGS:
            problem = "found unknown tag (text that begins with ! needs quotes)"
            raise ConstructorError(None, None, problem, node.start_mark)
        if isinstance(node, yaml.ScalarNode) and node.tag != _MERGE:
            _check_scalar(loader, node)
        if isinstance(node, yaml.SequenceNode):
            for index, item in enumerate(node.value):
                self._check_node(loader, item, f"{place}[{index}]", seen)
        if isinstance(node, yaml.MappingNode):
            names = set[str]()
            for key, value in node.value:
                self._check_node(loader, key, place, seen)
                inner = f"{place}.{key.value}" if place else str(key.value)
                if isinstance(key, yaml.ScalarNode) and key.tag != _MERGE:
                    if key.value in names:
                        self._repeated.setdefault(inner, "this key stands twice in its mapping")
                    names.add(key.value)
                self._check_node(loader, value, inner, seen)

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

    def _read_users(self, section: Any, realms: dict[str, RealmEntry]) -> Iterator[UserEntry]:
        """Yield each user. If the user's realm folds user names, the name is folded."""
        known = sorted({MAIN_REALM, *realms})
        seen: dict[str, str] = {}
        for place, tree in self._read_list("users", section):
            entry = self._read_entry(place, tree, UserEntry)
            if entry is None:
                continue
            if entry.realm not in known:
                self.note(f"{place}.realm", f"unknown realm; this file has {', '.join(known)}")
            if entry.realm in realms:
                name = normalize_username(entry.username, realms[entry.realm].username_claim)
                entry = msgspec.structs.replace(entry, username=name)
            self._check_user(place, entry)
            if self._is_text(entry.username):
                subject = identify_user(entry.realm, entry.username).subject
                self._check_unique(f"{place}.username", subject, seen)
            yield entry

    def _read_list(self, name: str, section: Any) -> Iterator[tuple[str, Any]]:
        if not isinstance(section, list | None):
            self.note(name, "expected a list")
            return
        for index, tree in enumerate(section or []):
            yield f"{name}[{index}]", tree

    def _read_entry(self, place: str, tree: Any, entry_type: type[Entry]) -> Entry | None:
        if not isinstance(tree, dict):
            self.note(place, "expected a mapping")
            return None
        try:
            return msgspec.convert(tree, entry_type)
        except msgspec.ValidationError:
            return self._read_entry_by_fields(place, tree, entry_type)

    def _read_entry_by_fields(self, place: str, tree: dict[Any, Any], entry_type: type[Entry]) -> Entry:
        """Read an invalid entry field by field, to note each of its mistakes."""
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
        """Return the value under the field's name, or an empty dict if the value cannot be used."""
        if getattr(value_type, "__origin__", None) is tuple and isinstance(tree, list):
            item_type = value_type.__args__[0]
            items = [self._read_value(name, f"{place}[{i}]", item, item_type) for i, item in enumerate(tree)]
            # A wrong item of an enumeration is left out, because no later check depends on the number of such items.
            return {name: tuple(item.get(name, "") for item in items if item or item_type not in _CHOICES)}
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
        if entry.username_claim in _NON_IDENTIFYING_CLAIMS:
            self.note(f"{place}.username_claim", "expected a claim that names a user, and always by the same name")
        if entry.trust_email and entry.username_claim != EMAIL_CLAIM:
            self.note(f"{place}.trust_email", f"expected username_claim: {EMAIL_CLAIM} in the same entry")
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
        allowed = self._read_scope(f"{place}.scope", entry.scope)
        default = self._read_scope(f"{place}.default_scope", entry.default_scope)
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

    def _read_scope(self, place: str, text: str) -> Scope:
        try:
            return parse_scope(text) if text else Scope()
        except InvalidScope as error:
            unknown = [item for item in text.split(" ") if item and item not in SCOPE_ITEMS]
            known = f"unknown item {unknown[0]!r}; known are {', '.join(SCOPE_ITEMS)}" if unknown else ""
            self.note(place, known or error.description)
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
        least, most = self._min_password_characters, MAX_PASSWORD_CHARACTERS
        if password is not None and not (self._is_text(password) and least <= len(password) <= most):
            self.note(f"{place}.password", f"expected {least} to {most} characters in one line")
        if password_hash is not None and not is_password_hash(password_hash):
            self.note(f"{place}.password_hash", "expected an argon2 hash in PHC form")

    def _is_text(self, text: str) -> bool:
        return is_unicode_without_line_ends(text)


def _get_order(place: str) -> tuple[int, int]:
    """Return the sort key of a mistake: its section, an unknown one first, and the index of the item in it."""
    match = _PLACE.match(place)
    return (_SECTIONS.index(match[1]), int(match[2] or 0)) if match else (-1, 0)


def _check_scalar(loader: Any, node: Any) -> None:
    try:
        loader.construct_object(node)
    except (ValueError, LookupError, AttributeError, OverflowError):  # raised by PyYAML's constructors
        problem = f"found text that is no {node.tag.rpartition(':')[2]}"
        raise ConstructorError(None, None, problem, node.start_mark) from None


def _check_depth(text: bytes) -> None:
    """Raise RecursionError if the text is nested so deeply that the composer would end the process."""
    depth = 0
    for event in yaml.parse(text, _Loader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _MAX_DEPTH:
            raise RecursionError


def _describe_yaml_error(error: Exception) -> str:
    if isinstance(error, yaml.reader.ReaderError):
        return "the file: is not text in UTF-8"
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        hint = " (text that begins with * needs quotes)" if "undefined alias" in str(error.problem) else ""
        return f"line {mark.line + 1}, column {mark.column + 1}: {error.problem}{hint}"
    return f"the file: {'is nested too deeply' if isinstance(error, RecursionError) else error}"


def _describe_conversion(error: msgspec.ValidationError) -> str:
    """Describe a type error in the words of YAML. msgspec names types as JSON does."""
    words = str(error).partition(" - at ")[0].lower()
    for name, word in _YAML_WORDS.items():
        words = words.replace(f"`{name}`", word)
    return words.replace("`", "")


def validate_entry(tree: dict[str, Any], entry_type: type[Entry], min_password_characters: int) -> Entry:
    """Return one entry of a client or user. Raises BadSeed with every mistake, each with the name of its field."""
    reader = _Reader(min_password_characters)
    entry = reader._read_entry("", tree, entry_type)
    assert entry is not None
    if isinstance(entry, ClientEntry):
        reader._check_client("", entry)
    elif isinstance(entry, UserEntry):
        reader._check_user("", entry)
    if reader.mistakes:
        raise BadSeed(tuple(f"{place.removeprefix('.')}: {mistake}" for place, mistake in reader.mistakes.items()))
    return entry
