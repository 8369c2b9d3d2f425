"""The reader of the seed file: realms, clients and users in YAML, checked as a whole before any of it is used.

All mistakes are reported together, each with its place. Unknown and repeated keys are mistakes.

Clauses: SPEC §2.3, §5.5
"""

from __future__ import annotations

import difflib
import functools
import hashlib
import re
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar, Final, TypeVar

import msgspec
import yaml
from yaml.constructor import ConstructorError

from service.protocol.client import GRANT_TYPES
from service.protocol.grammar import is_unicode_without_line_ends
from service.protocol.scope import MAIN_REALM, ROLES
from service.protocol.user import EMAIL_CLAIM, MIN_PASSWORD_CHARACTERS, identify_user, normalize_claim
from service.registry.seed_file import entries
from service.registry.seed_file.check import Mistakes, check_client, check_realm, check_user
from service.registry.seed_file.entries import BadSeed, ClientEntry, RealmEntry, Seed, UserEntry

_SECTIONS: Final = ("realms", "clients", "users")
_REALM_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,31}")
_CHOICES: Final[dict[object, tuple[str, ...]]] = {
    entries.Role: ROLES,
    entries.GrantType: GRANT_TYPES,
    entries.Introspect: ("true", "false", "all"),
}
_MERGE: Final = "tag:yaml.org,2002:merge"
Entry = TypeVar("Entry", RealmEntry, ClientEntry, UserEntry)
_list_fields = functools.cache(msgspec.structs.fields)


def _refuse_tag(_: yaml.CSafeLoader, node: yaml.Node) -> None:
    """Raise an error without the text, because a password without quotes that begins with ! is read as a type."""
    raise ConstructorError(None, None, "found unknown tag (text that begins with ! needs quotes)", node.start_mark)


class _Loader(yaml.CSafeLoader):
    """PyYAML's loader, for the types of a seed file only."""

    yaml_constructors: ClassVar = yaml.CSafeLoader.yaml_constructors | {None: _refuse_tag}

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except (ValueError, LookupError, AttributeError, OverflowError):  # raised by PyYAML's constructors
            problem = f"found text that is not a {node.tag.rpartition(':')[2]}"
            raise ConstructorError(None, None, problem, node.start_mark) from None


def make_fingerprint(path: Path) -> bytes:
    """Return the fingerprint of the seed file, without parsing it. Raises BadSeed if the file cannot be read."""
    return hashlib.sha256(_read_file(path)).digest()


def load_seed(path: Path, min_password_characters: int) -> Seed:
    """Read the seed file. Raises BadSeed with every mistake in the file."""
    try:
        return parse_seed(_read_file(path), min_password_characters)
    except BadSeed as refusal:
        raise BadSeed(refusal.mistakes, path) from None


def parse_seed(text: bytes, min_password_characters: int = MIN_PASSWORD_CHARACTERS) -> Seed:
    """Parse the text of a seed. Raises BadSeed with every mistake in the text.

    Repeated keys come first, because another mistake may follow from one. The rest is in the order of the sections.
    """
    try:
        tree, mistakes = _load_yaml(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise BadSeed((_describe_yaml_error(error),)) from None
    if not isinstance(tree, dict):
        raise BadSeed(("the file: expected a mapping with the keys realms, clients and users",))
    for name in tree.keys() - set(_SECTIONS):
        _note_unknown_key(str(name), str(name), _SECTIONS, "the file", mistakes)
    realms = dict(_read_realms(tree.get("realms"), mistakes))
    clients = tuple(_read_clients(tree.get("clients"), mistakes))
    users = tuple(_read_users(tree.get("users"), realms, mistakes, min_password_characters))
    if mistakes:
        raise BadSeed(tuple(f"{place}: {mistake}" for place, mistake in mistakes.items()))
    return Seed(realms=realms, clients=clients, users=users, fingerprint=hashlib.sha256(text).digest())


def read_entry(tree: Any, entry_type: type[Entry], at: str, mistakes: Mistakes) -> Entry | None:
    """Read an entry, if it has mistakes field by field to note each. A value that cannot be used counts as absent."""
    if not isinstance(tree, dict):
        mistakes.setdefault(at.removesuffix("."), "expected a mapping")
        return None
    if entry_type is not ClientEntry and None not in tree.values():  # the lifetimes of a client are texts
        with suppress(msgspec.ValidationError):
            return msgspec.convert(tree, entry_type)
    fields = {field.name: field for field in _list_fields(entry_type)}
    for name in tree:
        if name not in fields:
            kind = entry_type.__name__.removesuffix("Entry").lower()
            _note_unknown_key(f"{at}{name}", str(name), fields, f"a {kind}", mistakes)
        elif tree[name] is None:
            mistakes.setdefault(f"{at}{name}", "expected a value, not null; a field without a value is left out")
    values: dict[str, Any] = {name: "" for name, field in fields.items() if field.required}
    for name, field in fields.items():
        if name in tree:
            values |= _read_value(name, f"{at}{name}", tree[name], field.type, mistakes)
        elif field.required:
            mistakes.setdefault(f"{at}{name}", "is missing")
    return entry_type(**values)


def _note_unknown_key(place: str, name: str, known: Collection[str], whose: str, mistakes: Mistakes) -> None:
    """Note the key with the known one that is like it. If there is none, all known keys are listed, but only once."""
    nearest = difflib.get_close_matches(name, known, n=1, cutoff=0.7)
    mistakes.setdefault(place, f"unknown key; did you mean {nearest[0]}?" if nearest else "unknown key")
    if not nearest:
        mistakes.setdefault(f"allowed keys of {whose}", ", ".join(known))


def _read_value(name: str, place: str, tree: Any, value_type: Any, mistakes: Mistakes) -> dict[str, Any]:
    """Return the value under the field's name, or an empty dict if the value cannot be used."""
    if getattr(value_type, "__origin__", None) is tuple and isinstance(tree, list):
        item_type = value_type.__args__[0]
        items = [_read_value(name, f"{place}[{i}]", item, item_type, mistakes) for i, item in enumerate(tree)]
        # A wrong item of an enumeration is left out, because no later check depends on the number of such items.
        return {name: tuple(item.get(name, "") for item in items if item or item_type not in _CHOICES)}
    try:
        if name in entries.LIFETIMES:
            return {name: entries.read_lifetime(name, str(tree))}
        return {name: msgspec.convert(tree, value_type)}
    except msgspec.ValidationError as error:
        known = _CHOICES.get(value_type)
        mistakes.setdefault(
            place, f"expected one of {', '.join(known)}" if known else str(error).partition(" - at ")[0]
        )
    except ValueError as expected:
        mistakes.setdefault(place, f"expected {expected}")
    return {}


def _read_realms(section: Any, mistakes: Mistakes) -> Iterator[tuple[str, RealmEntry]]:
    if not isinstance(section, dict | None):
        mistakes.setdefault("realms", "expected a mapping from realm names to identity providers")
        return
    for name, tree in (section or {}).items():
        place = f"realms.{name}"
        if name == MAIN_REALM:
            mistakes.setdefault(place, "realm main is built in and cannot be configured")
        elif not (isinstance(name, str) and _REALM_NAME.fullmatch(name)):
            mistakes.setdefault(place, "expected a name of lower-case letters, digits, - and _, a letter first")
        entry = read_entry(tree, RealmEntry, f"{place}.", mistakes)
        if entry is not None:
            check_realm(entry, f"{place}.", mistakes)
            yield str(name), entry


def _read_clients(section: Any, mistakes: Mistakes) -> Iterator[ClientEntry]:
    seen: dict[str, str] = {}
    for at, entry in _read_list("clients", section, ClientEntry, mistakes):
        _check_unique(f"{at}client_id", entry.client_id, seen, mistakes)
        check_client(entry, at, mistakes)
        yield entry


def _read_users(
    section: Any, realms: dict[str, RealmEntry], mistakes: Mistakes, min_password_characters: int
) -> Iterator[UserEntry]:
    """Yield each user, with the user name in the form that its realm gives it."""
    known = sorted({MAIN_REALM, *realms})
    seen, seen_ids = dict[str, str](), dict[str, str]()
    for at, entry in _read_list("users", section, UserEntry, mistakes):
        if entry.realm not in known:
            mistakes.setdefault(f"{at}realm", f"unknown realm; realms of this file: {', '.join(known)}")
        claim = realms[entry.realm].username_claim if entry.realm in realms else EMAIL_CLAIM
        entry = msgspec.structs.replace(entry, username=normalize_claim(entry.username, claim))
        check_user(entry, at, mistakes, min_password_characters)
        _check_unique(f"{at}id", entry.id, seen_ids, mistakes)
        if is_unicode_without_line_ends(entry.username):
            digest = identify_user(entry.realm, entry.username).digest
            _check_unique(f"{at}username", digest, seen, mistakes)
        yield entry


def _read_list(name: str, section: Any, entry_type: type[Entry], mistakes: Mistakes) -> Iterator[tuple[str, Entry]]:
    if not isinstance(section, list | None):
        mistakes.setdefault(name, "expected a list")
        return
    for index, tree in enumerate(section or []):
        entry = read_entry(tree, entry_type, f"{name}[{index}].", mistakes)
        if entry is not None:
            yield f"{name}[{index}].", entry


def _check_unique(place: str, name: str, seen: dict[str, str], mistakes: Mistakes) -> None:
    if name in seen:
        mistakes.setdefault(place, f"is already defined at {seen[name]}")
    elif name:
        seen[name] = place


def _read_file(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise BadSeed((f"the file cannot be read: {error.strerror}",), path) from None


def _load_yaml(text: bytes) -> tuple[Any, Mistakes]:
    """Return the values of the file, and its repeated keys, of which YAML would silently use the last value."""
    loader = _Loader(text)
    try:
        root: Any = loader.get_single_node()
        repeated = dict.fromkeys(_list_repeated_keys(root, "", set()), "this key appears twice in its mapping")
        return None if root is None else loader.construct_document(root), repeated
    finally:
        loader.dispose()


def _list_repeated_keys(node: Any, at: str, seen: set[int]) -> Iterator[str]:
    if id(node) in seen:  # an alias leads to a node once more
        return
    seen.add(id(node))
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            yield from _list_repeated_keys(item, f"{at.removesuffix('.')}[{index}].", seen)
    elif isinstance(node, yaml.MappingNode):
        names = set[str]()
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != _MERGE:
                if key.value in names:
                    yield f"{at}{key.value}"
                names.add(key.value)
            yield from _list_repeated_keys(value, f"{at}{key.value}.", seen)


def _describe_yaml_error(error: Exception) -> str:
    if isinstance(error, yaml.reader.ReaderError):
        return "the file: is not text in UTF-8"
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        hint = " (text that begins with * needs quotes)" if "undefined alias" in str(error.problem) else ""
        return f"line {mark.line + 1}, column {mark.column + 1}: {error.problem}{hint}"
    return f"the file: {'is nested too deeply' if isinstance(error, RecursionError) else error}"
