"""The documents are short, and so are their sentences. They avoid a few wordings."""

import re

from tests.support.documents import PAGES, check_prose, check_words, split_sentences
from tests.support.servers import CHECKOUT

CHANGELOG = CHECKOUT / "CHANGELOG.md"


def test_sentences_are_short_and_avoid_some_words() -> None:
    pages = sorted({*PAGES, *CHECKOUT.glob("*.md")} - {CHANGELOG})

    assert [f"{page.name}: {problem}" for page in pages for problem in check_prose(page, page.read_text())] == []


def test_documents_are_short() -> None:
    assert check_words(PAGES[0], PAGES[0].read_text()) == []
    assert len(CHANGELOG.read_text().split()) <= 1_200


def test_guides_address_the_reader() -> None:
    guides = [page.read_text() for page in PAGES if page.parent.name in ("how-to", "tutorials")]
    words = " ".join(sentence for guide in guides for sentence in split_sentences(guide)).split()

    assert sum(re.match(r"yours?\b|you\b", word, re.IGNORECASE) is not None for word in words) >= len(words) * 0.012
