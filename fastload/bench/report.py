"""The result of a comparison as a table and a sentence."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

from fastload.bench.spec import TITLES
from fastload.errors import cell, printable

Json = dict[str, Any]


def number(value: float | None, digits: int = 0, scale: float = 1.0) -> str:
    """A value with thousands separators; n/a where the machine did not tell."""
    return "n/a" if value is None else f"{value * scale:,.{digits}f}"


def table(document: Json) -> Table:
    """The table of a document of ``harness.compare``."""
    settings = document["settings"]
    caption = (
        f"decode + RandomResizedCrop({settings['size']}) + flip, uint8 batches of {settings['batch_size']}, "
        f"{settings['workers']} threads or workers; medians of {settings['rounds']} interleaved rounds"
    )
    result = Table(title=f"fastload bench {cell(document['dataset'])}", caption=caption)
    result.add_column("loader")
    for title in ("images/s", "±", "first batch, ms", "epoch gap, ms", "PSS, MB", "CPU s / 1,000"):
        result.add_column(title, justify="right", no_wrap=title in ("images/s", "±"))
    for row in document["loaders"]:
        if row["reason"] is not None:
            result.add_row(row["title"], cell(row["reason"]), *[""] * 5)
            continue
        spread = row["images_per_s_spread"]
        result.add_row(
            row["title"],
            number(row["images_per_s"]),
            "" if spread is None else f"{spread:.0%}",
            number(row["first_batch_s"], 1, 1000),
            number(row["epoch_gap_ms"], 1),
            number(row["pss_bytes"], 0, 1e-6),
            number(row["cpu_s_per_1000"], 2),
            style="bold" if row["name"] == "fastload" else None,
        )
    return result


def sentence(document: Json) -> str:
    """One line: how many times the speed of torch's DataLoader fastload reached; else why that is not known."""
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
    """A warning when other processes (or a hypervisor) took more than a twentieth of the machine during the turns."""
    worst = max((row.get("others_share") or 0.0 for row in rows), default=0.0)
    if worst <= 0.05:
        return None
    return f"other processes took up to {worst:.0%} of the machine: rates are too low, repeat on a quiet one"


def show(document: Json, console: Console) -> None:
    """Prints the table, the machine and the sentence."""
    console.print(table(document))
    console.print(printable(machine_line(document)), style="dim", markup=False, highlight=False)
    if (warning := disturbance(document["loaders"])) is not None:
        console.print(warning, style="yellow", highlight=False, soft_wrap=True)
    console.print(printable(sentence(document)), style="bold", markup=False, highlight=False, soft_wrap=True)
