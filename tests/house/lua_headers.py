"""Reads a Lua script of the service: its header, and the words it returns."""

import re
from dataclasses import dataclass

from tests.support.servers import CHECKOUT

FIELDS = ("KEYS", "DERIVED", "ARGV", "RETURNS", "CLAUSES", "USES")
OPTIONAL_FIELDS = ("DERIVED", "USES")
FILES = {path.stem: path for path in (CHECKOUT / "service").rglob("*.lua") if "\n-- RETURNS " in path.read_text()}
NAMES = sorted(FILES)

_FIELD = re.compile(rf"-- ({'|'.join(FIELDS)})\s+(.*)")


@dataclass(frozen=True)
class LuaScript:
    name: str
    purpose: str
    fields: dict[str, str]
    body: str

    @property
    def words(self) -> set[str]:
        """The words of RETURNS: the first of each alternative."""
        return {part.split()[0].rstrip(",") for part in re.split(r"[|\n]", self.fields["RETURNS"])}


def read_script(name: str) -> LuaScript:
    lines = FILES[name].read_text().splitlines()
    length = next(index for index, line in enumerate(lines) if not line.startswith("--"))
    purpose, fields, current = list[str](), dict[str, str](), ""
    for line in lines[:length]:
        match = _FIELD.fullmatch(line)
        if match is not None:
            current = match[1]
            assert current not in fields, f"{current} is repeated"
            fields[current] = match[2]
        elif current:
            fields[current] += "\n" + line.removeprefix("--").strip()
        else:
            purpose.append(line.removeprefix("-- "))
    return LuaScript(name, "\n".join(purpose), fields, "\n".join(lines[length:]))


def returned_words(script: LuaScript) -> set[str]:
    """The words that stand first in what the body returns, also where a variable carries them."""
    words: set[str] = set()
    for returned in re.findall(r"return \{\s+([^,}]+)", script.body):
        first = returned.strip()
        if variable := re.fullmatch(r"(?:unpack\()?(\w+)\)?", first):
            assigned = re.findall(rf"^.*\b{variable[1]}\b[^=\n]* = ([^\n]*)", script.body, re.MULTILINE)
            words |= {word for value in assigned for word in re.findall(r"'([a-z_]+)'", value)}
        else:
            words |= set(re.findall(r"'([a-z_]+)'", first))
    return words
