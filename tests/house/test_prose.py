"""Sentences of documents are short."""

import re

from tests.support.servers import CHECKOUT

MAX_WORDS = 30

DOCUMENTS = sorted({*CHECKOUT.glob("*.md"), *CHECKOUT.glob("docs/**/*.md")} - {CHECKOUT / "CHANGELOG.md"})


def split_sentences(text: str) -> list[str]:
    """Return the sentences of a document, without code, tables, headings and the addresses of links."""
    text = re.sub(r"```.*?```", " ", text, flags=re.DOTALL)
    text = re.sub(r"`[^`]*`", "x", text)
    text = re.sub(r"\]\([^)]*\)", "]", text)
    lines = [line for line in text.splitlines() if not line.lstrip().startswith(("|", "#", "!["))]
    blocks = re.split(r"\n\s*(?:[-*]|\d+\.)\s+|\n\s*\n", "\n".join(lines))
    return [sentence for block in blocks for sentence in re.split(r"(?<=[.!?])\s+", " ".join(block.split()))]


def test_the_sentences_of_documents_are_short() -> None:
    long = [
        f"{document.relative_to(CHECKOUT)}: {sentence}"
        for document in DOCUMENTS
        for sentence in split_sentences(document.read_text())
        if len(sentence.split()) > MAX_WORDS
    ]

    assert long == []
