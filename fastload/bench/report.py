"""The result of a comparison as a table and a sentence."""

from __future__ import annotations

from typing import Any

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from fastload.bench.spec import SHORT, TITLES
from fastload.errors import cell, printable

Json = dict[str, Any]
_COLUMNS = (
    ("images_per_s", "images/s", 0, 1.0),
    ("images_per_s_spread", "±", 0, 1.0),
    ("first_batch_s", "first, ms", 1, 1000.0),
    ("epoch_gap_ms", "gap, ms", 1, 1.0),
    ("pss_bytes", "PSS, MB", 0, 1e-6),
    ("cpu_s_per_1000", "CPU, s", 2, 1.0),
)
"""Columns of the table: key, title, digits, factor. The caption explains the titles."""


def number(value: float | None, digits: int = 0, scale: float = 1.0) -> str:
    """A value with thousands separators; n/a where the machine did not tell."""
    return "n/a" if value is None else f"{value * scale:,.{digits}f}"


def table(document: Json) -> Table:
    """The table of a document of ``harness.compare``."""
    settings = document["settings"]
    caption = (
        f"decode + RandomResizedCrop({settings['size']}) + flip, uint8 batches of {settings['batch_size']}, "
        f"{settings['workers']} threads or workers; medians of {settings['rounds']} interleaved "
        "rounds. first: first batch; "
        "gap: between epochs; PSS: memory; CPU: of 1,000 images"
    )
    result = Table(
        title=f"fastload bench {cell(document['dataset'])}",
        caption=caption,
        box=SIMPLE,
        padding=(0, 1),
        pad_edge=False,
    )
    result.add_column("loader", no_wrap=True)
    rows = [row for row in document["loaders"] if row["reason"] is None]
    columns = [column for column in _COLUMNS if any(row[column[0]] is not None for row in rows)]
    for _, title, _, _ in columns:
        result.add_column(title, justify="right", no_wrap=True)
    for row in rows:
        shown = (_shown(row[name], title, digits, scale) for name, title, digits, scale in columns)
        style = "bold" if row["name"] == "fastload" else None
        result.add_row(SHORT.get(row["name"], row["title"]), *shown, style=style)
    return result


def _shown(value: float | None, title: str, digits: int, scale: float) -> str:
    return f"{value:.0%}" if title == "±" and value is not None else number(value, digits, scale)


def left_out(document: Json) -> list[str]:
    """A line for each loader that did not run."""
    return [f"{row['title']}: {row['reason']}" for row in document["loaders"] if row["reason"] is not None]


def sentence(document: Json) -> str:
    """One line: how many times the speed of torch's DataLoader fastload reached; else why that is not
    known."""
    ratios = document["ratios"]
    for name in ("pillow", "packed"):
        if ratios.get(name) is not None:
            return f"fastload is {ratios[name]:.1f}x {TITLES[name]}"
    reasons = {row["name"]: row["reason"] for row in document["loaders"]}
    return f"no ratio: {reasons.get('fastload') or reasons.get('packed')}"


def machine_line(document: Json) -> str:
    """The machine in one line."""
    machine = document["machine"]
    parts = [f"{machine['cpu']}, {machine['cores']} cores", f"Python {machine['python']}"]
    for name, title in (("torch", "torch"), ("libjpeg_turbo", "libjpeg-turbo"), ("pillow", "Pillow")):
        if machine[name]:
            parts.append(f"{title} {machine[name]}")
    return ", ".join(parts)


def disturbance(rows: list[Json]) -> str | None:
    """A warning when other processes (or a hypervisor) took more than a twentieth of the machine during
    the turns."""
    worst = max((row.get("others_share") or 0.0 for row in rows), default=0.0)
    if worst <= 0.05:
        return None
    return f"other processes took up to {worst:.0%} of the machine: rates are too low, repeat on a quiet one"


def show(document: Json, console: Console) -> None:
    """Prints the table, the machine and the sentence."""
    console.print(table(document))
    for line in left_out(document):
        console.print(printable(line), markup=False, highlight=False, soft_wrap=True)
    console.print(printable(machine_line(document)), style="dim", markup=False, highlight=False)
    if (warning := disturbance(document["loaders"])) is not None:
        console.print(warning, style="yellow", highlight=False, soft_wrap=True)
    console.print(printable(sentence(document)), style="bold", markup=False, highlight=False, soft_wrap=True)
