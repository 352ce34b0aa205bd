"""Pictures of README and the documentation as SVG: `python tools/draw_pictures.py` writes docs/pictures.

Each follows the reader's colour scheme: shapes have classes, and a style sheet in the file has their colours
for light and dark pages. The charts take their figures from the saved results of benchmarks, and from the
first table of docs/benchmarks.md. A test draws all pictures again and compares.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "pictures"

WIDTH = 400
"""Pixels across every picture: a phone shows its words at nearly their size."""

COLOURS = {
    "text": ("#1f2328", "#e6edf3"),
    "quiet": ("#59636e", "#9aa4af"),
    "line": ("#b6bec8", "#4b5563"),
    "accent": ("#0b6bcb", "#58a6ff"),
    "soft": ("#cfe4fa", "#1d3a5c"),
    "on-accent": ("#ffffff", "#0d1117"),
}
"""Colours on a light page and on a dark one. `class="text"` fills a shape, `class="text-line"` draws its
outline."""


def _rules(scheme: int) -> str:
    return " ".join(
        f".{name} {{ fill: {both[scheme]} }} .{name}-line {{ stroke: {both[scheme]} }}"
        for name, both in COLOURS.items()
    )


STYLE = (
    f"text {{ font-family: system-ui, sans-serif }} {_rules(0)} @media (prefers-color-scheme: dark) {{ "
    f"{_rules(1)} }}"
)


# ---- figures -----------------------------------------------------------------------------------------------


def rates() -> list[tuple[str, int]]:
    """Loader and images a second, by row of the first table of docs/benchmarks.md that has them."""
    table = (
        (ROOT / "docs" / "benchmarks.md")
        .read_text(encoding="utf-8")
        .partition("| loader | images/s |")[2]
        .partition("\n\n")[0]
    )
    return [
        (name, int(rate.replace(",", "")))
        for name, rate in re.findall(r"^\| ([^|]+) \| ([\d,]+) \|", table, re.MULTILINE)
    ]


def ratios() -> list[tuple[str, float]]:
    """Programs and their images a second, as times of torch's DataLoader in the same run of a benchmark;
    the slowest first."""
    programs, place, packed, dct, busy = (
        result(name) for name in ("programs", "in_place", "loader_in500", "dct", "busy_loop")
    )
    return [
        ("torch DataLoader + Pillow", 1.0),
        ("your own Dataset, import changed", target(programs, "reference, exact: images/s over torch's")),
        ("ImageFolder, the first epoch", target(place, "epoch 1 / torch DataLoader")),
        ("packed by fastload pack", target(packed, "fastload / torch DataLoader + Pillow")),
        ("ImageFolder, later epochs", target(place, "epoch 2 / torch DataLoader")),
        ("packed with --encode dct", target(dct, "in500: dct / torch DataLoader + Pillow (aim 12)")),
        (
            "ImageFolder with cache=, epoch 3",
            target(busy, "epoch 3 after two held to half the rate / torch DataLoader"),
        ),
    ]


def peers() -> list[tuple[str, float, float]]:
    """Other loaders at crops with two workers: name, rate as times of torch's, CPU seconds for 1,000
    images; the slowest first."""
    rows = [
        row
        for row in result("peers")["peers"]
        if (row["work"], row["workers"]) == ("crop", 2) and row["to_pillow"] is not None
    ]
    named = [(row["title"] + ("" if row["antialias"] != "no" else ", not antialiased"), row) for row in rows]
    return sorted(
        ((name, row["to_pillow"], row["cpu_s_per_1000"]) for name, row in named), key=lambda row: row[1]
    )


def result(name: str) -> Any:
    """A saved result of a benchmark."""
    return json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text(encoding="utf-8"))


def target(saved: Any, name: str) -> float:
    """A ratio to torch's DataLoader that the benchmark compared with its target."""
    return float(next(each["value"] for each in saved["targets"] if each["name"] == name))


# ---- parts of a picture ------------------------------------------------------------------------------------


def text(
    x: float,
    y: float,
    words: str,
    colour: str = "text",
    *,
    size: int = 15,
    anchor: str = "start",
    bold: bool = False,
) -> str:
    """A line of text whose baseline is at y."""
    weight = ' font-weight="600"' if bold else ""
    return (
        f'<text class="{colour}" x="{x:g}" y="{y:g}" font-size="{size}" '
        f'text-anchor="{anchor}"{weight}>{escape(words)}</text>'
    )


def box(
    x: float, y: float, width: float, height: float, fill: str = "", line: str = "", radius: float = 4
) -> str:
    """A rectangle."""
    look = f'class="{fill} {line}-line" stroke-width="1.5"' if line else f'class="{fill}"'
    empty = "" if fill else ' fill="none"'
    return f'<rect {look}{empty} x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{radius:g}"/>'


def arrow(points: list[tuple[float, float]]) -> str:
    """A line through points with a head at its end."""
    path = " ".join(f"{x:g},{y:g}" for x, y in points)
    return (
        f'<polyline class="quiet-line" points="{path}" fill="none" stroke-width="2" marker-end="url(#head)"/>'
    )


def picture(width: int, height: int, title: str, parts: Iterator[str]) -> str:
    """A whole SVG file."""
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" role="img">',
        f"<title>{escape(title)}</title>",
        f"<style>{STYLE}</style>",
        '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="5" '
        'markerHeight="5" orient="auto">',
        '<path class="quiet" d="M0 0L8 4L0 8z"/></marker></defs>',
        *parts,
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def bars(title: str, rows: Sequence[tuple[str, float, str, bool]], notes: Sequence[str]) -> str:
    """A bar chart.

    Args:
        title: text for those who do not see it.
        rows: name, value, words beside the bar, and whether the row is fastload's.
        notes: lines below.
    """
    longest = max(value for _, value, _, _ in rows)

    def parts() -> Iterator[str]:
        for number, (name, value, words, own) in enumerate(rows):
            top, length = 8 + 52 * number, 256 * value / longest
            yield text(4, top + 13, name, "text" if own else "quiet", bold=own)
            yield box(4, top + 20, length, 22, "accent" if own else "line")
            yield text(12 + length, top + 37, words, bold=own)
        for number, note in enumerate(notes):
            yield text(4, 8 + 52 * len(rows) + 18 + 20 * number, note, "quiet", size=13)

    return picture(WIDTH, 52 * len(rows) + 18 + 20 * len(notes), title, parts())


# ---- the pictures ------------------------------------------------------------------------------------------


def rate_chart() -> str:
    """Images a second of each loader, and how often torch's with Pillow fits into it."""
    rows = rates()
    last = rows[-1][1]
    beside = [f"{rate:,}" if rate == last else f"{rate:,}  ({rate / last:.1f}x)" for _, rate in rows]
    drawn = [
        (name, rate, words, number == 0)
        for number, ((name, rate), words) in enumerate(zip(rows, beside, strict=True))
    ]
    return bars("Images a second by loader", drawn, ["Images a second, two threads or two workers."])


def ratio_chart() -> str:
    """Images a second of programs with FastLoader, as times of torch's DataLoader."""
    rows = ratios()
    said = ", ".join(f"{name} {ratio:.1f}" for name, ratio in rows)
    drawn = [(name, ratio, f"{ratio:.1f}x", number > 0) for number, (name, ratio) in enumerate(rows)]
    notes = (
        "Images a second, as times of torch's DataLoader in the",
        "same run: crops of 224, 2 cores, 2 workers or threads.",
        "by bench_programs, bench_in_place, bench_loader, bench_dct",
    )
    return bars(f"Images a second, times torch: {said}", drawn, notes)


def peers_chart() -> str:
    """Images a second of the loaders of `make peers`, as times of torch's DataLoader."""
    rows = peers()
    drawn = [
        (name, rate, f"{rate:.1f}x, {cpu:.2f} s", name.startswith("fastload")) for name, rate, cpu in rows
    ]
    notes = (
        "Images a second, as times of torch's DataLoader in",
        "the same round; CPU seconds for 1,000 images. Crops",
        "of 224, 2 cores, 2 workers or threads, by bench_peers",
    )
    return bars(
        "Loaders, times torch: " + ", ".join(f"{name} {rate:.1f}" for name, rate, _ in rows), drawn, notes
    )


def balance_chart() -> str:
    """Patches of the heaviest of 8 ranks over their mean, by bins of TokenBatches and of first fit."""
    rows = [
        (f"{plan['way']}, {word}", plan[key] - 1, f"{plan[key] - 1:.1%}", plan["way"] == "TokenBatches")
        for plan in reversed(result("documents")["plans"][:2])
        for word, key in (("95th percentile", "patches_p95"), ("median", "patches_median"))
    ]
    notes = (
        "Patches of the heaviest of 8 ranks above their mean,",
        "of each step: what the others wait for. Bins of 8,192",
        "tokens, documents as in LLaVA-instruct; bench_documents",
    )
    said = ", ".join(f"{name} {words}" for name, _, words, _ in rows)
    return bars(f"Patches of the heaviest rank above the mean: {said}", rows, notes)


def slot_life() -> str:
    """States of a slot: free, filling, ready, leased, and free again."""
    states = (
        ("FREE", "memory is there", 0),
        ("FILLING", "threads write rows", 3),
        ("READY", "waits for the loop", 5),
        ("LEASED", "your tensors see it", 5),
    )

    def parts() -> Iterator[str]:
        for (name, meaning, rows), (left, top) in zip(
            states, ((16, 8), (244, 8), (244, 208), (16, 208)), strict=True
        ):
            yield box(left, top, 140, 118, "", "line")
            for row in range(5):
                yield box(
                    left + 14, top + 12 + 19 * row, 112, 14, "accent" if row < rows else "soft", radius=2
                )
            yield text(left + 70, top + 138, name, anchor="middle", bold=True)
            yield text(left + 70, top + 157, meaning, "quiet", size=13, anchor="middle")
        yield arrow([(162, 67), (238, 67)])
        yield arrow([(314, 172), (314, 202)])
        yield arrow([(238, 267), (162, 267)])
        yield arrow([(86, 202), (86, 172)])
        yield text(16, 388, "FREE again when the last tensor is gone", "quiet", size=13)
        yield text(16, 406, "and no copy from it is queued", "quiet", size=13)

    return picture(WIDTH, 416, "The life of a slot", parts())


def region() -> str:
    """Blocks of a JPEG: with the entropy index only those of the crop are decoded."""
    across, down, size = 16, 9, 20
    columns, rows = range(8, 13), range(3, 7)

    def parts() -> Iterator[str]:
        titles = (
            "without an index: everything before the crop",
            "with the index: the crop, from a mark in each row",
        )
        for panel, title in enumerate(titles):
            top = 8 + 218 * panel
            for y in range(down):
                for x in range(across):
                    crop = x in columns and y in rows
                    before = (y, x) < (rows.stop - 1, columns.stop)
                    read = before if panel == 0 else y in rows and x == columns.start - 1
                    fill = "accent" if crop else "soft" if read else ""
                    yield box(4 + size * x, top + size * y, size - 2, size - 2, fill, "line", 1)
            wide, high = size * len(columns) + 2, size * len(rows) + 2
            yield box(2 + size * columns.start, top - 2 + size * rows.start, wide, high, "", "text", 2)
            yield text(4, top + size * down + 20, title, "quiet", size=14)
        yield box(4, 444, 14, 14, "accent", radius=2)
        yield text(24, 456, "made into pixels", "quiet", size=14)
        yield box(160, 444, 14, 14, "soft", radius=2)
        yield text(180, 456, "codes read only", "quiet", size=14)

    return picture(WIDTH, 468, "Region decode with and without the entropy index", parts())


def bucket_cache() -> str:
    """A bucket, two hosts with a cache each, and the ranks of a host."""

    def parts() -> Iterator[str]:
        yield box(4, 80, 76, 70, "soft", "accent")
        yield text(42, 110, "bucket", anchor="middle", bold=True)
        yield text(42, 130, "shards", "quiet", size=13, anchor="middle")
        for host in range(2):
            top = 8 + 112 * host
            yield box(136, top, 260, 98, "", "line")
            yield text(146, top + 20, f"host {host}", "quiet", size=13)
            yield box(146, top + 32, 104, 50, "accent")
            yield text(198, top + 54, "cache on", "on-accent", size=14, anchor="middle", bold=True)
            yield text(198, top + 71, "its disk", "on-accent", size=14, anchor="middle", bold=True)
            yield arrow([(84, 104 + 22 * host), (140, top + 57)])
            for rank in range(3):
                yield box(306, top + 10 + 28 * rank, 82, 22, "soft")
                yield text(347, top + 25 + 28 * rank, f"rank {3 * host + rank}", size=13, anchor="middle")
                yield arrow([(254, top + 57), (301, top + 21 + 28 * rank)])
        yield text(4, 30, "each byte once", "quiet", size=13)

    return picture(WIDTH, 226, "Each host downloads a byte once", parts())


PICTURES: dict[str, Callable[[], str]] = {
    "rate": rate_chart,
    "ratio": ratio_chart,
    "peers": peers_chart,
    "slot": slot_life,
    "region": region,
    "cache": bucket_cache,
    "balance": balance_chart,
}


def files() -> dict[str, str]:
    """Every picture by the name of its file."""
    return {f"{name}.svg": draw() for name, draw in PICTURES.items()}


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, content in files().items():
        (FOLDER / name).write_text(content, encoding="utf-8")
