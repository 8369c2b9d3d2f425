"""The secret keys: those that are set, or else the key in the data folder of the embedded store."""

from __future__ import annotations

from typing import cast

from service.config.parsers import SECRET_KEY_BYTES, parse_secret_keys
from service.config.reading import Reading, Setting


def read_secret_keys(read: Reading, setting: Setting) -> tuple[bytes, ...]:
    """Return the keys that are set, or else the key in the data folder.

    Returns an empty tuple if there is no key yet, or a key is wrong. Of a wrong key only the length is shown.
    """
    if read.environment.get(setting.variable) or read.environment.get(setting.file_variable):
        return cast("tuple[bytes, ...] | None", read.value_of(setting)) or ()
    if not read.uses_embedded_store:
        read.mistake(setting.variable, "not set", f"{SECRET_KEY_BYTES} bytes or more, where REDIS_URL is set")
        return ()
    kept = _kept_secret_key(read)
    try:
        return () if kept is None else parse_secret_keys(kept)
    except ValueError as expected:
        read.mistake(setting.variable, setting.shown(kept or ""), str(expected))
        return ()


def _kept_secret_key(read: Reading) -> str | None:
    file = read.values["data_dir"] / "secret_key"
    try:
        return str(file.read_text("utf-8", "surrogateescape").strip())
    except FileNotFoundError:
        return None
    except OSError as error:
        found = f"{str(file)!r} cannot be read ({error.strerror})"
        read.mistake("TOKEN_SERVICE_DATA_DIR", found, "a data folder of our own")
        return None
