"""The table of keys at the top of service/store/keys.py."""

import re
from typing import NamedTuple

from service.store import keys


class Row(NamedTuple):
    pattern: str
    type: str
    lives: str
    written_by: str

    @property
    def kind(self) -> str:
        return re.split(r"[:{]", self.pattern)[0]

    def fits(self, key: str) -> bool:
        """Names in angle or curly brackets stand for any text; a part in square brackets may be left out."""
        form = re.escape(self.pattern.replace("…", "<rest>"))
        form = form.replace(r"<user>\[:from\]", r"[\w-]+(?::(?!origins$).+)?")
        form = form.replace(r"\[:sid\]", r"(?::[\w-]+)?")
        form = form.replace(r"\{registry\}", r"\{REGISTRY\}")
        form = re.sub(r"\\\{[a-z\\ ]+\\\}", r"\\{[0-9a-f]+\\}", form).replace("REGISTRY", "registry")
        return re.fullmatch(re.sub(r"<[^>]*>", ".+", form), key) is not None


def read_table() -> list[Row]:
    lines = [line for line in (keys.__doc__ or "").splitlines() if line.startswith("| ")][2:]
    return [Row(*(cell.strip() for cell in line.strip("|").split("|"))) for line in lines]
