"""Whether everybody can use a page: axe-core's rules, and what the width of a small screen asks."""

from __future__ import annotations

import asyncio
from typing import Any

from playwright.async_api import Page

from tests.servers import CHECKOUT, PATIENCE_SECONDS

AXE = CHECKOUT / "tests" / "npm" / "node_modules" / "axe-core" / "axe.min.js"
RUN = """async tags => (await axe.run(document, {runOnly: tags, resultTypes: ["violations"]})).violations"""
TAGS = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice")


async def assert_accessible(page: Page) -> None:
    """No rule of WCAG 2.2, levels A and AA, that a program can check is broken."""
    violations = await find_violations(page)
    assert not violations, "\n".join([f"{page.url} is not accessible:", *map(_describe, violations)])


async def find_violations(page: Page) -> list[dict[str, Any]]:
    """Each with its rule as `id`. The policy of a page does not stop axe-core, but a device without JavaScript does."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        await page.evaluate(AXE.read_text())
        violations: list[dict[str, Any]] = await page.evaluate(RUN, TAGS)
    return violations


async def assert_fits(page: Page) -> None:
    """Nothing has to be scrolled sideways."""
    needed, shown = await page.evaluate(
        "() => [document.documentElement.scrollWidth, document.documentElement.clientWidth]"
    )
    assert needed <= shown, f"{page.url} is {needed} pixels wide on a screen of {shown}"


def _describe(violation: dict[str, Any]) -> str:
    lines = [f"{violation['id']} ({violation['impact']}): {violation['help']}"]
    for node in violation["nodes"]:
        lines.append(f"  {node['html']}")
        lines.extend(f"    {line}" for line in node["failureSummary"].splitlines())
    return "\n".join(lines)
