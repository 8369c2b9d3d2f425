"""The files that the program reads: templates/, docs/openapi.yaml, examples/seed.yaml and redis.conf.

A wheel has them in the folder `files` of the package. A checkout has them beside the package.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

_PACKAGE: Final = Path(__file__).resolve().parent.parent
_FILES_OF_WHEEL: Final = _PACKAGE / "files"

IS_INSTALLED: Final = _FILES_OF_WHEEL.is_dir()
"""True if the program was installed from a wheel."""

PROGRAM_FILES: Final = _FILES_OF_WHEEL if IS_INSTALLED else _PACKAGE.parent
