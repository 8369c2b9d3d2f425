"""Reads a Lua script of the service: its header, the names it binds, the words it returns."""

import re
from dataclasses import dataclass

from tests.support.servers import CHECKOUT

FOLDERS = (CHECKOUT / "service" / "store" / "lua", CHECKOUT / "service" / "redis_client" / "lua")
FILES = {path.stem: path for folder in FOLDERS for path in folder.glob("*.lua")}
NAMES = sorted(FILES)

FIELDS = ("KEYS", "DERIVED", "ARGV", "RETURNS", "CLAUSES", "USES")
OPTIONAL_FIELDS = ("DERIVED", "USES")

_FIELD = re.compile(rf"-- ({'|'.join(FIELDS)})\s+(.*)")
_BINDING = re.compile(r"local ([\w, ]+) = (.+)")
_INDEXED = re.compile(r"(?:tonumber|cjson\.decode)?\(?(KEYS|ARGV)\[(\d+)\]\)?")
_WHOLE = re.compile(r"(KEYS|ARGV)|\{ unpack\((KEYS|ARGV), (\d+)(?:, #KEYS - 1)?\) \}")


@dataclass(frozen=True)
class Header:
    purpose: str
    fields: dict[str, str]

    def names(self, field: str) -> list[str]:
        """The names of KEYS or ARGV, without the remarks in brackets."""
        return re.sub(r"\([^)]*\)", "", self.fields.get(field, "")).replace(",", " ").split()

    @property
    def words(self) -> set[str]:
        """The words of RETURNS: the first of each alternative."""
        return {part.split()[0].rstrip(",") for part in re.split(r"[|\n]", self.fields["RETURNS"])}


@dataclass(frozen=True)
class Binding:
    name: str
    source: str
    position: int


@dataclass(frozen=True)
class LuaScript:
    name: str
    text: str
    header: Header
    bindings: list[Binding]
    body: str

    def bound(self, source: str) -> list[str]:
        """Local names for KEYS or ARGV in the order of their positions."""
        return [b.name for b in sorted(self.bindings, key=lambda b: b.position) if b.source == source]


def read_script(name: str) -> LuaScript:
    text = FILES[name].read_text()
    lines = text.splitlines()
    length = next(index for index, line in enumerate(lines) if not line.startswith("--"))
    bound, rest = _read_bindings(lines[length:])
    return LuaScript(name, text, _read_header(lines[:length]), bound, "\n".join(rest))


def _read_header(lines: list[str]) -> Header:
    purpose: list[str] = []
    fields: dict[str, str] = {}
    current = ""
    for line in lines:
        match = _FIELD.fullmatch(line)
        if match is not None:
            current = match[1]
            assert current not in fields, f"{current} is repeated"
            fields[current] = match[2]
        elif current:
            fields[current] += "\n" + line.removeprefix("--").strip()
        else:
            purpose.append(line.removeprefix("-- "))
    return Header("\n".join(purpose), fields)


def _read_bindings(lines: list[str]) -> tuple[list[Binding], list[str]]:
    """The statements before the first empty line, and what follows them."""
    end = lines.index("")
    bindings: list[Binding] = []
    for line in lines[:end]:
        match = _BINDING.fullmatch(line)
        assert match is not None, f"not a binding: {line}"
        names = match[1].split(", ")
        whole = _WHOLE.fullmatch(match[2])
        if whole is not None:
            bindings.append(Binding(names[0], whole[1] or whole[2], int(whole[3] or 1)))
            continue
        sources = match[2].split(", ")
        assert len(names) == len(sources), line
        for name, source in zip(names, sources, strict=True):
            indexed = _INDEXED.fullmatch(source)
            assert indexed is not None, f"not a binding: {source}"
            bindings.append(Binding(name, indexed[1], int(indexed[2])))
    return bindings, lines[end:]


def returned_words(script: LuaScript) -> set[str]:
    """The words that stand first in what the body returns, also where a variable carries them."""
    words: set[str] = set()
    for returned in re.findall(r"return \{\s+([^,}]+)", script.body):
        first = returned.strip()
        if re.fullmatch(r"\w+", first):
            assigned = re.findall(rf"^.*\b{first}\b[^=\n]* = ([^\n]*)", script.body, re.MULTILINE)
            words |= {word for value in assigned for word in re.findall(r"'([a-z_]+)'", value)}
        else:
            words |= set(re.findall(r"'([a-z_]+)'", first))
    return words
