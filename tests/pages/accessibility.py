"""Accessibility of a page: the rules of axe-core, and its layout on small screens."""

import asyncio
from typing import Any

from playwright.async_api import Page

from tests.support.javascript import PACKAGES, check_javascript
from tests.support.waiting import MAX_WAIT_SECONDS

AXE = PACKAGES / "axe-core" / "axe.min.js"
RUN = """async rules => (await axe.run(document, {runOnly: rules, resultTypes: ["violations"]})).violations"""
TAGS = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice")
OF_COLOURS = {"type": "rule", "values": ["color-contrast", "link-in-text-block"]}
WIDTHS = ((320, 568), (390, 844), (1280, 900))
LEAST_TARGET = 44
CONTROLS = "button, a[href], label.choice, .field input"
END_OF_ANIMATIONS = "() => Promise.all(document.getAnimations().map(animation => animation.finished))"
LOOKS = "() => [document.body, document.querySelector('main')].map(e => getComputedStyle(e).backgroundColor)"
HITS = """elements => elements.map(element => {
  element.scrollIntoView({block: "center"});
  const box = element.getBoundingClientRect();
  const hit = document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2);
  return {text: element.textContent.trim() || element.name, height: box.height, left: box.left, right: box.right,
          hit: element.contains(hit)};
})"""


async def assert_usable(page: Page) -> None:
    """Check a page with axe-core in light and dark mode, and by touch on screens of three widths."""
    await assert_accessible(page)
    light = await page.evaluate(LOOKS)
    await page.emulate_media(color_scheme="dark")
    assert not set(light) & set(await page.evaluate(LOOKS))
    await assert_accessible(page, OF_COLOURS)

    # The buttons of the consent page ignore the pointer during their animations.
    await page.evaluate(END_OF_ANIMATIONS)
    for width, height in WIDTHS:
        await page.set_viewport_size({"width": width, "height": height})
        await assert_fits(page)
        for target in await page.locator(CONTROLS).evaluate_all(HITS):
            assert target["height"] >= LEAST_TARGET, target
            assert target["hit"], f"something covers it: {target}"
            assert 0 <= target["left"] < target["right"] <= width, target


async def assert_accessible(page: Page, rules: object = TAGS) -> None:
    """Check that the page breaks no rule of WCAG 2.2, levels A and AA, that axe-core can test.

    `rules` selects some of them.
    """
    violations = await find_violations(page, rules)
    assert not violations, "\n".join([f"{page.url} is not accessible:", *map(_describe, violations)])


async def find_violations(page: Page, rules: object = TAGS) -> list[dict[str, Any]]:
    """Return violations, each with its rule as `id`. axe-core needs JavaScript, and ignores the policy of a page."""
    check_javascript()
    async with asyncio.timeout(MAX_WAIT_SECONDS):
        if not await page.evaluate("() => 'axe' in window"):
            await page.evaluate(AXE.read_text())
        violations: list[dict[str, Any]] = await page.evaluate(RUN, rules)
    return violations


async def assert_fits(page: Page) -> None:
    """Check that the page needs no horizontal scrolling."""
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
