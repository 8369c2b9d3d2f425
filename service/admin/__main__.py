"""The start of the console: `python -m service.admin`. Each module in `commands` has one subject."""

from __future__ import annotations

from service.admin.command import console


def main() -> None:
    """Run the console, which is also the command `token-service-admin`."""
    console(prog_name="token-service-admin")


if __name__ == "__main__":
    main()
