"""The metadata of a wheel."""

from email import message_from_bytes
from email.message import Message
from pathlib import Path
from zipfile import ZipFile


def read_metadata(wheel: Path) -> Message:
    with ZipFile(wheel) as files:
        (name,) = (name for name in files.namelist() if name.endswith(".dist-info/METADATA"))
        return message_from_bytes(files.read(name))
