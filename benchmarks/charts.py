"""Bar charts as SVG, for light and for dark backgrounds."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Literal, NamedTuple

WIDTH, LABELS, NUMBERS = 760, 320, 70
BARS = WIDTH - LABELS - NUMBERS
ROW, BAR, TITLE = 26, 16, 44

Kind = Literal["ours", "floor", "peer"]

STYLE = """\
text { font: 13px system-ui, sans-serif; fill: #1f2328; }
.title { font-weight: 600; font-size: 15px; }
.note { fill: #59636e; } .mark { stroke: #59636e; stroke-dasharray: 3 3; }
.ours { fill: #0969da; } .floor { fill: #afb8c1; } .peer { fill: #bc4c00; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3; } .note { fill: #9198a1; } .mark { stroke: #9198a1; }
  .ours { fill: #4493f8; } .floor { fill: #59636e; } .peer { fill: #db6d28; }
}"""


class Bar(NamedTuple):
    label: str
    value: float
    kind: Kind


def draw_bars(title: str, note: str, bars: Sequence[Bar], *, mark: float | None = None) -> str:
    """Return a chart whose longest bar has the full width.

    `note` explains the numbers. A dashed line marks the value `mark`.
    """
    longest = max((*(bar.value for bar in bars), mark or 0)) or 1
    height = TITLE + ROW * len(bars) + 12
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" role="img"'
            f' aria-label="{escape(title)}">',
            f"<style>\n{STYLE}\n</style>",
            f'<text class="title" x="8" y="22">{escape(title)} <tspan class="note">{escape(note)}</tspan></text>',
            *(_draw_bar(bar, TITLE + ROW * row, bar.value / longest) for row, bar in enumerate(bars)),
            *([] if mark is None else [_draw_mark(mark / longest, height)]),
            "</svg>\n",
        ]
    )


def _draw_bar(bar: Bar, top: int, share: float) -> str:
    length = share * BARS
    middle = top + BAR - 3
    return (
        f'<text x="{LABELS - 10}" y="{middle}" text-anchor="end">{escape(bar.label)}</text>'
        f'<rect class="{bar.kind}" x="{LABELS}" y="{top}" width="{length:.1f}" height="{BAR}" rx="2"/>'
        f'<text x="{LABELS + length + 8:.1f}" y="{middle}">{_format(bar.value)}</text>'
    )


def _draw_mark(share: float, height: int) -> str:
    x = f"{LABELS + share * BARS:.1f}"
    return f'<line class="mark" x1="{x}" x2="{x}" y1="{TITLE - 6}" y2="{height - 8}"/>'


def _format(number: float) -> str:
    return f"{number:,.0f}" if number >= 10 else f"{number:.2f}"
