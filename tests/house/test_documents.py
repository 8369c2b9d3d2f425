"""The targets of links in documents exist: files, headings. Required topics have all their rows."""

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

from tests.support.servers import CHECKOUT

FOLDERS = ("docs", "examples", "distributions")
DOCUMENTS = sorted([*CHECKOUT.glob("*.md"), *(page for name in FOLDERS for page in CHECKOUT.glob(f"{name}/**/*.md"))])
LINKING = [*DOCUMENTS, CHECKOUT / "docs" / "openapi.yaml"]
LINK = re.compile(r"\[(?:[^\]\[]|\[[^\]]*\])*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#{1,6} +(.+?)\s*$", re.MULTILINE)
BLOCK = re.compile(r"^( *)```.*?^\1```$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`\n]*`")


def links_of(document: Path) -> Iterator[str]:
    """Yield the links within the repository, without those in code."""
    text = CODE.sub("", BLOCK.sub("", document.read_text()))
    yield from (target for target in LINK.findall(text) if not re.match(r"[a-z]+:", target))


def anchors_of(document: Path) -> set[str]:
    """Return the anchors that GitHub makes of headings: lower case, no punctuation, hyphens for spaces, numbered."""
    anchors: list[str] = []
    for heading in HEADING.findall(BLOCK.sub("", document.read_text())):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("\\", "").lower()
        slug = re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
        times = sum(re.fullmatch(rf"{re.escape(slug)}(-\d+)?", anchor) is not None for anchor in anchors)
        anchors.append(f"{slug}-{times}" if times else slug)
    return set(anchors)


def test_every_link_has_a_target() -> None:
    for document in LINKING:
        for link in links_of(document):
            path, _, anchor = link.partition("#")
            target = (document.parent / unquote(path)).resolve() if path else document
            assert target.exists(), (document, link)
            assert not anchor or anchor in anchors_of(target), (document, link)


def test_every_document_is_found_from_the_readme() -> None:
    found, fresh = set[Path](), {CHECKOUT / "README.md"}
    while fresh:
        found |= fresh
        targets = {(page.parent / link.partition("#")[0]).resolve() for page in fresh for link in links_of(page)}
        fresh = {target for target in targets if target.suffix == ".md" and target.is_file()} - found

    assert {*CHECKOUT.glob("docs/**/*.md")} <= found
