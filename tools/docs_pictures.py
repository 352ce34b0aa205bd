"""Pictures of the documentation as SVG, each for a light and a dark page: `python tools/docs_pictures.py` writes docs/pictures.

The chart of rates takes its figures from the first table of docs/benchmarks.md. `tests/docs/test_pictures.py` compares the files with it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "pictures"


class Palette(NamedTuple):
    """Colours of one scheme."""

    text: str
    quiet: str
    line: str
    accent: str
    soft: str
    on_accent: str


PALETTES = {
    "light": Palette("#1f2328", "#59636e", "#b6bec8", "#0b6bcb", "#cfe4fa", "#ffffff"),
    "dark": Palette("#e6edf3", "#9aa4af", "#4b5563", "#58a6ff", "#1d3a5c", "#0d1117"),
}


def rates() -> list[tuple[str, int]]:
    """Loader and images a second, by row of the first table of docs/benchmarks.md that has them."""
    table = (ROOT / "docs" / "benchmarks.md").read_text().partition("| loader | images/s |")[2].partition("\n\n")[0]
    return [(name, int(rate.replace(",", ""))) for name, rate in re.findall(r"^\| ([^|]+) \| ([\d,]+) \|", table, re.MULTILINE)]


# ---- parts of a picture ---------------------------------------------------------------------------------------------


def text(x: float, y: float, words: str, colour: str, *, size: int = 15, anchor: str = "start", bold: bool = False) -> str:
    """A line of text whose baseline is at y."""
    weight = ' font-weight="600"' if bold else ""
    return f'<text x="{x:g}" y="{y:g}" font-size="{size}" text-anchor="{anchor}" fill="{colour}"{weight}>{escape(words)}</text>'


def box(x: float, y: float, width: float, height: float, fill: str, line: str = "none", radius: float = 4) -> str:
    """A rectangle."""
    place = f'x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{radius:g}"'
    return f'<rect {place} fill="{fill}" stroke="{line}" stroke-width="1.5"/>'


def arrow(points: list[tuple[float, float]], colour: str) -> str:
    """A line through points with a head at its end."""
    path = " ".join(f"{x:g},{y:g}" for x, y in points)
    return f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2" marker-end="url(#head)"/>'


def picture(width: int, height: int, title: str, colours: Palette, parts: Iterator[str]) -> str:
    """A whole SVG file."""
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" font-family="system-ui, sans-serif">',
        f"<title>{escape(title)}</title>",
        '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="5" markerHeight="5" orient="auto">',
        f'<path d="M0 0L8 4L0 8z" fill="{colours.quiet}"/></marker></defs>',
        *parts,
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


# ---- the pictures ---------------------------------------------------------------------------------------------------


def rate_chart(colours: Palette) -> str:
    """Bars of the images a second of each loader, and how often torch's with Pillow fits into it."""
    rows = rates()
    last = rows[-1][1]

    def parts() -> Iterator[str]:
        for number, (name, rate) in enumerate(rows):
            top, own = 14 + 46 * number, number == 0
            yield text(330, top + 20, name, colours.text if own else colours.quiet, size=14, anchor="end", bold=own)
            yield box(342, top, 300 * rate / rows[0][1], 28, colours.accent if own else colours.line)
            times = "" if rate == last else f"  ({rate / last:.1f}x)"
            yield text(350 + 300 * rate / rows[0][1], top + 20, f"{rate:,}{times}", colours.text, size=14, bold=own)
        yield text(342, 14 + 46 * len(rows) + 12, "images a second, two threads or two workers", colours.quiet, size=13)

    return picture(790, 46 * len(rows) + 40, "Images a second by loader", colours, parts())


def slot_life(colours: Palette) -> str:
    """States of a slot: free, filling, ready, leased, and free again."""
    states = (
        ("FREE", "memory is there", 0),
        ("FILLING", "threads write rows", 3),
        ("READY", "waits for the loop", 5),
        ("LEASED", "your tensors see it", 5),
    )

    def parts() -> Iterator[str]:
        for number, (name, meaning, rows) in enumerate(states):
            left = 16 + 184 * number
            yield box(left, 16, 140, 118, "none", colours.line)
            for row in range(5):
                yield box(left + 14, 28 + 19 * row, 112, 14, colours.accent if row < rows else colours.soft, radius=2)
            yield text(left + 70, 158, name, colours.text, anchor="middle", bold=True)
            yield text(left + 70, 177, meaning, colours.quiet, size=13, anchor="middle")
            if number < 3:
                yield arrow([(left + 144, 75), (left + 180, 75)], colours.quiet)
        yield arrow([(638, 186), (638, 212), (86, 212), (86, 186)], colours.quiet)
        yield text(362, 206, "the last tensor is gone, and no copy is queued", colours.quiet, size=13, anchor="middle")

    return picture(724, 224, "The life of a slot", colours, parts())


def region(colours: Palette) -> str:
    """Blocks of a JPEG: with the entropy index only those of the crop are decoded."""
    across, down, size = 16, 9, 20
    columns, rows = range(8, 13), range(3, 7)

    def parts() -> Iterator[str]:
        titles = ("without an index: everything before the crop", "with the index: the crop, from a mark in each row")
        for panel, title in enumerate(titles):
            left = 16 + 356 * panel
            for y in range(down):
                for x in range(across):
                    crop = x in columns and y in rows
                    before = (y, x) < (rows.stop - 1, columns.stop)
                    read = before if panel == 0 else y in rows and x == columns.start - 1
                    fill = colours.accent if crop else colours.soft if read else "none"
                    yield box(left + size * x, 16 + size * y, size - 2, size - 2, fill, colours.line, 1)
            wide, high = size * len(columns) + 2, size * len(rows) + 2
            yield box(left + size * columns.start - 2, 14 + size * rows.start, wide, high, "none", colours.text, 2)
            yield text(left, 16 + size * down + 20, title, colours.quiet, size=13)
        yield box(16, 230, 14, 14, colours.accent, radius=2)
        yield text(36, 242, "made into pixels", colours.quiet, size=13)
        yield box(160, 230, 14, 14, colours.soft, radius=2)
        yield text(180, 242, "codes read only", colours.quiet, size=13)

    return picture(708, 256, "Region decode with and without the entropy index", colours, parts())


def bucket_cache(colours: Palette) -> str:
    """A bucket, two hosts with a cache each, and the ranks of a host."""

    def parts() -> Iterator[str]:
        yield box(16, 70, 120, 90, colours.soft, colours.accent)
        yield text(76, 112, "bucket", colours.text, anchor="middle", bold=True)
        yield text(76, 132, "shards", colours.quiet, size=13, anchor="middle")
        for host in range(2):
            top = 16 + 112 * host
            yield box(260, top, 448, 90, "none", colours.line)
            yield text(272, top + 20, f"host {host}", colours.quiet, size=13)
            yield box(272, top + 30, 170, 46, colours.accent)
            yield text(357, top + 58, "cache on its disk", colours.on_accent, size=14, anchor="middle", bold=True)
            yield arrow([(140, 115 - 14 + 28 * host), (266, top + 53)], colours.quiet)
            for rank in range(3):
                yield box(520, top + 8 + 27 * rank, 176, 21, colours.soft)
                yield text(608, top + 23 + 27 * rank, f"rank {3 * host + rank}", colours.text, size=13, anchor="middle")
                yield arrow([(446, top + 53), (515, top + 18 + 27 * rank)], colours.quiet)
        yield text(148, 30, "each byte once", colours.quiet, size=13)

    return picture(724, 234, "Each host downloads a byte once", colours, parts())


PICTURES: dict[str, Callable[[Palette], str]] = {"rate": rate_chart, "slot": slot_life, "region": region, "cache": bucket_cache}


def files() -> dict[str, str]:
    """Every picture by the name of its file."""
    return {f"{name}-{scheme}.svg": draw(colours) for name, draw in PICTURES.items() for scheme, colours in PALETTES.items()}


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, content in files().items():
        (FOLDER / name).write_text(content)
