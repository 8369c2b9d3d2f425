"""A consent answered with "deny", which leads to no code any more."""

import pytest

from tests.store.pages import Pages


@pytest.mark.clause("decided-i7-revocation-is-final")
@pytest.mark.parametrize(("later_ms", "answer"), [(0, "unknown"), (1, "unknown"), (-1, "denied")])
async def test_mark_covers_earlier_consents(pages: Pages, later_ms: int, answer: str) -> None:
    page = await pages.open()
    pages.set_mark(int(pages.consent_record(page)["created_ms"]) + later_ms)
    pages.change_browser(page, created_ms="9999999999999")  # the session alone would still do

    assert await pages.deny(page) == answer
