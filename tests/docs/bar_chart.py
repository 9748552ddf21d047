"""Horizontal bars as SVG, readable on light and dark pages."""

from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

WIDTH, ROW, RIGHT, TOP = 760, 26, 72, 44
LETTER = 7
"""Upper bound of the average letter width in names."""
STYLE = (
    "text{font:13px system-ui,sans-serif;fill:#24292f}"
    ".title{font-weight:600;font-size:14px}.note{fill:#57606a;font-size:12px}"
    ".first{fill:#00897b}.second{fill:#90a4ae}line{stroke:#57606a;stroke-dasharray:3 3}"
    "@media(prefers-color-scheme:dark){text{fill:#e6edf3}.note{fill:#9aa4ae}"
    ".first{fill:#4db6ac}.second{fill:#607d8b}line{stroke:#9aa4ae}}"
)


@dataclass(frozen=True)
class Bar:
    """A bar: its name, its value, and the label at its end."""

    name: str
    value: float
    label: str
    ours: bool = True


def bar_chart(title: str, note: str, bars: Sequence[Bar], line: float | None = None) -> str:
    """Return the picture; a dashed line marks the value `line`."""
    left = 16 + LETTER * max(len(bar.name) for bar in bars)
    scale = (WIDTH - left - RIGHT) / max(bar.value for bar in bars)
    bottom = TOP + ROW * len(bars)
    rows = [_row(bar, TOP + ROW * place, left, scale) for place, bar in enumerate(bars)]
    if line is not None:
        x = left + line * scale
        rows.append(f'<line x1="{x:.1f}" y1="{TOP - 4}" x2="{x:.1f}" y2="{bottom}"/>')
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {bottom + 30}" '
            f'role="img" aria-label="{escape(title)}">',
            f"<style>{STYLE}</style>",
            f'<text class="title" x="8" y="22">{escape(title)}</text>',
            *rows,
            f'<text class="note" x="8" y="{bottom + 20}">{escape(note)}</text>',
            "</svg>\n",
        ]
    )


def _row(bar: Bar, top: int, left: int, scale: float) -> str:
    length, kind = bar.value * scale, "first" if bar.ours else "second"
    return (
        f'<text x="{left - 8}" y="{top + 17}" text-anchor="end">{escape(bar.name)}</text>'
        f'<rect class="{kind}" x="{left}" y="{top + 4}" width="{length:.1f}" height="18" rx="2"/>'
        f'<text x="{left + length + 6:.1f}" y="{top + 17}">{escape(bar.label)}</text>'
    )
