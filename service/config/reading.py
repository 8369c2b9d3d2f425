"""The reading of settings from the environment or from files. Every mistake is collected."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from service.config.parsers import parse_file

MAX_SECRET_FILE_BYTES = 64 * 1024


Value = TypeVar("Value")


class BadSettings(Exception):
    """Error with one line for each mistake: the variable, its value and what was expected."""

    def __init__(self, mistakes: tuple[str, ...]) -> None:
        super().__init__("\n".join(mistakes))
        self.mistakes = mistakes


class Reading:
    """A reader of one setting after another. It collects the mistakes, so that all are reported at once."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.environment = environment
        self.values: dict[str, Any] = {}
        self.mistakes: list[str] = []

    @property
    def uses_embedded_store(self) -> bool:
        return not (self.environment.get("REDIS_URL") or self.environment.get("REDIS_URL_FILE"))

    def mistake(self, variable: str, found: str, expected: str) -> None:
        self.mistakes.append(f"{variable}: {found}: expected {expected}")

    def value_of(self, setting: Setting) -> object:
        """Return the parsed value, or the parsed default if the variable is unset, empty or wrong.

        A secret may also be in the file that its `_FILE` variable names. A wrong value is recorded as a mistake. A
        secret is not shown there. Of any other value the part up to an `@` is not shown, since it may hold a password.
        """
        text = self.environment.get(setting.variable) or ""
        file = self.environment.get(setting.file_variable) if setting.secret else None
        try:
            if text and file:
                raise ValueError(f"either {setting.variable} or this, not both")
            if text or file:
                return setting.parse(read_secret_file(file) if file else text)
        except ValueError as expected:
            user, _, rest = text.rpartition("@")
            shown = "(hidden)" if setting.secret else repr(f"…@{rest}" if user else text)
            source = (setting.file_variable, repr(file)) if file else (setting.variable, shown)
            self.mistake(*source, str(expected))
        default = setting.default(self) if callable(setting.default) else setting.default
        return None if default is None else setting.parse(default)


def read_secret_file(name: str) -> str:
    """Return the content of a file. Raises ValueError with what was expected."""
    file = parse_file(name)
    try:
        with file.open("rb") as opened:
            content = opened.read(MAX_SECRET_FILE_BYTES + 1)
        text = content.decode("utf-8-sig").strip()
    except (OSError, UnicodeDecodeError):
        raise ValueError("a readable file in UTF-8") from None
    if not text or len(content) > MAX_SECRET_FILE_BYTES:
        raise ValueError("a non-empty file of at most 64 KiB")
    return text


Default = str | None | Callable[[Reading], str | None]


@dataclass(frozen=True, slots=True)
class Setting:
    """The source of a field of `Settings`."""

    variable: str
    parse: Callable[[str], object]
    default: Default
    secret: bool  # a secret may also come from a file

    @property
    def file_variable(self) -> str:
        return f"{self.variable}_FILE"


def setting(variable: str, parse: Callable[[str], Value], default: Default, *, secret: bool = False) -> Value:
    """Declare a field of `Settings`. For the type checker the field has the type that the parser returns."""
    found = Setting(variable, parse, default, secret)
    return cast("Value", field(repr=not secret, metadata={"setting": found}))
