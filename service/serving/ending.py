"""How the application learns that its process is about to end."""

from typing import Final

__all__ = ["ENDING"]

ENDING: Final = "token_service.ending"
"""True in the state of each request from then on."""
