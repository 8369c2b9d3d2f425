"""The documents link, name and quote only what exists. The checks are tried on planted mistakes."""

import functools
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.documented_commands import run_page
from tests.support.documents import (
    PAGES,
    check_links,
    check_marks,
    check_messages,
    check_names,
    check_prose,
    check_words,
    list_links,
)
from tests.support.servers import CHECKOUT

DOCS = CHECKOUT / "docs"
LINKING = {
    *PAGES,
    *CHECKOUT.glob("*.md"),
    *(page for folder in ("examples", "distributions") for page in CHECKOUT.glob(f"{folder}/**/*.md")),
    DOCS / "openapi.yaml",
}


def test_every_link_has_a_target() -> None:
    assert find_problems(check_links, LINKING) == []


def test_every_block_has_a_known_mark() -> None:
    assert find_problems(check_marks, PAGES) == []


def test_every_quoted_message_is_in_the_code() -> None:
    assert find_problems(check_messages, PAGES) == []


def test_every_name_exists() -> None:
    assert find_problems(check_names, PAGES) == []


def find_problems(check: Callable[[Path, str], list[str]], pages: list[Path] | set[Path]) -> list[str]:
    """Return what a check finds in the pages."""
    found = [(page, check(page, page.read_text())) for page in sorted(pages)]
    return [f"{page.relative_to(CHECKOUT)}: {problem}" for page, problems in found for problem in problems]


def test_every_document_is_found_from_the_readme() -> None:
    found, fresh = set[Path](), {CHECKOUT / "README.md"}
    while fresh:
        found |= fresh
        targets = {
            (page.parent / link.partition("#")[0]).resolve() for page in fresh for link in list_links(page.read_text())
        }
        fresh = {target for target in targets if target.suffix == ".md" and target.is_file()} - found

    assert {*CHECKOUT.glob("docs/**/*.md")} <= found


@pytest.mark.parametrize(
    ("check", "page", "right", "wrong"),
    [
        (check_links, "how-to/monitor.md", "(troubleshooting.md", "(trouble.md"),
        (check_links, "how-to/troubleshooting.md", "](#redis-errors)", "](#errors-of-redis)"),
        (check_names, "how-to/troubleshooting.md", "TOKEN_SERVICE_DURABILITY", "TOKEN_SERVICE_DURABLE"),
        (check_names, "how-to/rotate-keys-and-secrets.md", "web-shop --overlap", "web-shop --overlapping"),
        (check_names, "how-to/troubleshooting.md", "token_service_rejections_total", "token_service_errors_total"),
        (check_messages, "how-to/troubleshooting.md", "`it cannot be reached`", "`it is out of reach`"),
        (check_marks, "how-to/monitor.md", "```sh\ncurl", "```\ncurl"),
        (check_marks, "how-to/back-up-and-restore.md", "run by tests/deployment/test_backup.py", "run by hand"),
        (check_prose, "how-to/protect-an-api.md", "the caller receives 503", "the answer is 503"),
        (check_words, "index.md", "# ", "Another sentence. " * 15_000),
    ],
)
def test_a_planted_mistake_is_reported(
    check: Callable[[Path, str], list[str]], page: str, right: str, wrong: str
) -> None:
    text = (DOCS / page).read_text()

    assert right in text
    assert len(check(DOCS / page, text.replace(right, wrong, 1))) == len(check(DOCS / page, text)) + 1


@pytest.mark.parametrize(
    ("page", "right", "wrong"),
    [
        ("reference/access-token-record.md", "```sh\n", "```sh\nfalse\n"),
        ("reference/access-token-record.md", "access:{220}:tJ", "access:{221}:tJ"),
        ("how-to/deploy-containers.md", "<!-- not run: needs Docker -->\n", ""),
    ],
    ids=["failing block", "other output", "unmarked block"],
)
def test_a_planted_block_is_reported(tmp_path: Path, page: str, right: str, wrong: str) -> None:
    run = functools.partial(run_page, url="http://127.0.0.1:8000", environment={})
    text = (DOCS / page).read_text()
    (tmp_path / "right").mkdir()
    (tmp_path / "wrong").mkdir()

    assert run(text, tmp_path / "right") == []
    assert len(run(text.replace(right, wrong), tmp_path / "wrong")) == 1
