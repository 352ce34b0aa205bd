"""The result of a comparison as a PNG. Needs matplotlib, which is no dependency of fastload."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastload.bench.harness import check_writable
from fastload.bench.report import machine_line, number, sentence
from fastload.common.distribution import pip_install
from fastload.errors import ArgumentError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Json = dict[str, Any]
OURS, THEIRS = "#1b6ca8", "#b8bec6"
# column, title, digits, scale
PANELS = (
    ("cpu_s_per_1000", "CPU seconds per 1,000 images", 2, 1.0),
    ("pss_bytes", "memory, MB (PSS of all processes)", 0, 1e-6),
    ("first_batch_s", "first batch, ms", 0, 1e3),
    ("epoch_gap_ms", "pause between epochs, ms", 1, 1.0),
)


def _bars(
    axes: Axes, rows: list[Json], column: str, title: str, digits: int, scale: float, labels: bool
) -> None:
    values = [(row[column] or 0.0) * scale for row in rows]
    places = range(len(rows))
    axes.barh(
        places, values, color=[OURS if row["name"] == "fastload" else THEIRS for row in rows], height=0.66
    )
    room = max([*values, 1e-9])
    for place, row, value in zip(places, rows, values, strict=True):
        text = number(row[column], digits, scale)
        axes.text(value + room * 0.015, place, text, va="center", ha="left", fontsize=9)
    axes.set_xlim(0, room * 1.22)
    axes.set_yticks(list(places), [row["title"].replace(" + ", "\n+ ", 1) for row in rows] if labels else [])
    axes.invert_yaxis()
    axes.set_title(title, fontsize=10, loc="left")
    axes.tick_params(left=False, bottom=False, labelbottom=False, labelsize=9)
    for side in ("top", "right", "bottom"):
        axes.spines[side].set_visible(False)


def check(path: Path) -> None:
    """Refuses what `draw` would, before anything is measured.

    Raises:
        ArgumentError: matplotlib is not installed, or the path cannot be written.
    """
    _figure()
    check_writable("--plot", path)


def _figure() -> type[Figure]:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ArgumentError(f"--plot needs matplotlib: {pip_install('bench')}") from error
    return Figure


def draw(document: Json, path: Path) -> None:
    """Writes the plot: images/s on the left, the other columns on the right; loaders that did not run are
    left out.

    Raises:
        ArgumentError: matplotlib is not installed, no loader ran, or the path cannot be written.
    """
    rows = [row for row in document["loaders"] if row["reason"] is None]
    if not rows:
        raise ArgumentError("--plot: no loader ran, there is nothing to draw")
    figure = _figure()(figsize=(12, 1.6 + 0.85 * len(rows)), layout="constrained")
    grid = figure.add_gridspec(2, 3, width_ratios=(1.5, 1, 1))
    _bars(figure.add_subplot(grid[:, 0]), rows, "images_per_s", "images per second", 0, 1.0, labels=True)
    for number_of_panel, panel in enumerate(PANELS):
        axes = figure.add_subplot(grid[number_of_panel // 2, 1 + number_of_panel % 2])
        _bars(axes, rows, *panel, labels=False)
    settings = document["settings"]
    work = (
        f"RandomResizedCrop({settings['size']}) + flip, batches of {settings['batch_size']}, "
        f"{settings['workers']} threads or workers"
    )
    figure.suptitle(sentence(document), fontsize=13, fontweight="bold", x=0.01, ha="left")
    figure.supxlabel(f"{work}. {machine_line(document)}", fontsize=8, color="#555555", x=0.01, ha="left")
    try:
        figure.savefig(path, dpi=120, format="png")
    except OSError as error:
        raise ArgumentError(f"--plot {path}: {error.strerror}") from error
