"""Docstrings begin with a full statement, and sentences of documents are short."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.servers import CHECKOUT

MAX_WORDS = 30

FRAGMENT_WORDS = {
    "after", "also", "anybody", "around", "as", "at", "before", "behind", "beside", "by", "else", "everybody",
    "for", "from", "how", "in", "its", "never", "nobody", "none", "not", "nothing", "of", "on", "once", "one",
    "only", "ours", "over", "since", "so", "somebody", "than", "that", "their", "they", "those", "through", "to",
    "under", "until", "up", "what", "whatever", "where", "whether", "which", "while", "who", "whoever", "whom",
    "whose", "with", "without",
}  # fmt: skip
"""A docstring that begins with one of these is a fragment: its subject or its verb stands somewhere else."""

DOCUMENTS = sorted({*CHECKOUT.glob("*.md"), *CHECKOUT.glob("docs/**/*.md")} - {CHECKOUT / "CHANGELOG.md"})


def docstrings_of(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of every docstring, also of those behind a constant."""
    for node in ast.walk(ast.parse(path.read_text())):
        for child in ast.iter_child_nodes(node):
            if (
                isinstance(child, ast.Expr)
                and isinstance(child.value, ast.Constant)
                and isinstance(child.value.value, str)
            ):
                yield child.lineno, child.value.value


def sentences_of(text: str) -> list[str]:
    """Return the sentences of a document, without code, tables, headings and the addresses of links."""
    text = re.sub(r"```.*?```", " ", text, flags=re.DOTALL)
    text = re.sub(r"`[^`]*`", "x", text)
    text = re.sub(r"\]\([^)]*\)", "]", text)
    lines = [line for line in text.splitlines() if not line.lstrip().startswith(("|", "#", "!["))]
    blocks = re.split(r"\n\s*(?:[-*]|\d+\.)\s+|\n\s*\n", "\n".join(lines))
    return [sentence for block in blocks for sentence in re.split(r"(?<=[.!?])\s+", " ".join(block.split()))]


def test_the_reader_of_sentences_leaves_out_what_is_none() -> None:
    text = "# Heading\n\nOne. Two [links](x.md) here.\n\n| a | table |\n\n- an item\n- `code` twice\n\n```\ncode\n```\n"

    assert [each for each in sentences_of(text) if each] == ["One.", "Two [links] here.", "an item", "x twice"]


def test_no_docstring_of_the_service_begins_with_a_fragment() -> None:
    """`Clauses:` may stand alone."""
    fragments = [
        f"{path.relative_to(CHECKOUT)}:{line}: {text.strip().splitlines()[0]}"
        for path in sorted((CHECKOUT / "service").rglob("*.py"))
        for line, text in docstrings_of(path)
        if (first := re.match(r"\W*([A-Za-z]+)", text)) and first[1].lower() in FRAGMENT_WORDS
    ]

    assert not fragments


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(CHECKOUT).as_posix())
def test_the_sentences_of_a_document_are_short(document: Path) -> None:
    assert not [each for each in sentences_of(document.read_text()) if len(each.split()) > MAX_WORDS]
