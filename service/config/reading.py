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

        A wrong value is recorded as a mistake.
        """
        text = self.find_text(setting)
        if text:
            try:
                return setting.parse(text)
            except ValueError as expected:
                self.mistake(*self._describe_source(setting, text), str(expected))
        default = setting.default(self) if callable(setting.default) else setting.default
        return None if default is None else setting.parse(default)

    def find_text(self, setting: Setting) -> str | None:
        """Return the text of the variable or, for a secret, of the file that its `_FILE` variable names.

        If both are set or the file cannot be used, this is recorded as a mistake. Returns None after a mistake, or if
        neither is set.
        """
        text, file = self.environment.get(setting.variable), self.environment.get(setting.file_variable)
        if not (setting.secret and file):
            return text
        if text:
            self.mistake(setting.file_variable, repr(file), f"only one of {setting.variable} and this")
            return None
        try:
            return _read_secret_file(file)
        except ValueError as expected:
            self.mistake(setting.file_variable, repr(file), str(expected))
            return None

    def _describe_source(self, setting: Setting, text: str) -> tuple[str, str]:
        """Return the variable that a wrong value came from, and what may be shown of the value.

        A secret is not shown. Of any other value the part up to an `@` is not shown, since it may hold a password.
        """
        if setting.secret:
            file = self.environment.get(setting.file_variable)
            return (setting.file_variable, repr(file)) if file else (setting.variable, "a value that is not shown")
        user, _, rest = text.rpartition("@")
        return setting.variable, repr(f"…@{rest}" if user else text)


def _read_secret_file(name: str) -> str:
    file = parse_file(name)
    try:
        with file.open("rb") as opened:
            content = opened.read(MAX_SECRET_FILE_BYTES + 1)
        text = content.decode().strip()
    except (OSError, UnicodeDecodeError):
        raise ValueError("a readable file in UTF-8") from None
    if not text or len(content) > MAX_SECRET_FILE_BYTES:
        raise ValueError("a file that is not empty and has at most 64 KiB")
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
