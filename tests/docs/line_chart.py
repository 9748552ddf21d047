"""Lines through points as SVG, readable on light and dark pages."""

from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from pockengine.tests.docs.bar_chart import STYLE, WIDTH

LEFT, TOP, RIGHT, HEIGHT = 64, 44, 210, 260
BELOW = 64
"""Height for the labels of the horizontal axis and the note."""

LINE_STYLE = (
    "polyline{fill:none;stroke-width:2}.line0{stroke:#00897b;fill:#00897b}"
    ".line1{stroke:#3949ab;fill:#3949ab}.line2{stroke:#c2185b;fill:#c2185b}"
    ".grid{stroke-dasharray:none;stroke-opacity:0.2}"
    "@media(prefers-color-scheme:dark){.line0{stroke:#4db6ac;fill:#4db6ac}"
    ".line1{stroke:#9fa8da;fill:#9fa8da}.line2{stroke:#f48fb1;fill:#f48fb1}}"
    "polyline.line0,polyline.line1,polyline.line2{fill:none}"
)


@dataclass(frozen=True)
class Line:
    """A name, listed beside the picture, and points in order."""

    name: str
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Axis:
    """Values with a grid line, from the least to the largest; their format; the axis' name."""

    name: str
    ticks: Sequence[float]
    form: str

    def place(self, value: float, begin: float, end: float) -> float:
        """The position of a value between those of the first and the last tick."""
        least, most = self.ticks[0], self.ticks[-1]
        return begin + (value - least) / (most - least) * (end - begin)


def line_chart(title: str, note: str, axes: tuple[Axis, Axis], lines: Sequence[Line]) -> str:
    """Return the picture of at most three lines; `axes` are the horizontal and the vertical one."""
    bottom, right = TOP + HEIGHT, WIDTH - RIGHT

    def at(point: tuple[float, float]) -> tuple[float, float]:
        return axes[0].place(point[0], LEFT, right), axes[1].place(point[1], bottom, TOP)

    parts = []
    for tick in axes[0].ticks:
        x, _ = at((tick, axes[1].ticks[0]))
        parts.append(f'<line class="grid" x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{bottom}"/>')
        label = axes[0].form.format(tick)
        parts.append(f'<text x="{x:.1f}" y="{bottom + 18}" text-anchor="middle">{label}</text>')
    for tick in axes[1].ticks:
        _, y = at((axes[0].ticks[0], tick))
        parts.append(f'<line class="grid" x1="{LEFT}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}"/>')
        label = axes[1].form.format(tick)
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{label}</text>')
    for place, line in enumerate(lines):
        parts += _drawn([at(point) for point in line.points], f"line{place}")
        x, y = right + 24, TOP + 12 + 22 * place
        parts.append(f'<circle class="line{place}" cx="{x}" cy="{y}" r="4"/>')
        parts.append(f'<text x="{x + 12}" y="{y + 4}">{escape(line.name)}</text>')
    names = f"{escape(axes[0].name)}; {escape(axes[1].name)}"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {bottom + BELOW}" '
            f'role="img" aria-label="{escape(title)}">',
            f"<style>{STYLE}{LINE_STYLE}</style>",
            f'<text class="title" x="8" y="22">{escape(title)}</text>',
            *parts,
            f'<text class="note" x="8" y="{bottom + 38}">{names}</text>',
            f'<text class="note" x="8" y="{bottom + 56}">{escape(note)}</text>',
            "</svg>\n",
        ]
    )


def _drawn(points: Sequence[tuple[float, float]], kind: str) -> list[str]:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dots = [f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="3"/>' for x, y in points]
    return [f'<polyline class="{kind}" points="{path}"/>', *dots]
