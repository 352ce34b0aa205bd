"""Draws benchmarks/results/rates.svg from the saved results: images/s of programs with FastLoader, as times of torch's DataLoader.

    python tools/draw_rates.py

The picture follows the reader's colour scheme. A test draws it again and compares.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "benchmarks" / "results" / "rates.svg"
WIDTH, LEFT, BAR, GAP = 760, 300, 26, 12
STYLE = """
text { font: 14px system-ui, sans-serif; fill: #24292f }
.ours { fill: #1a7f64 } .theirs { fill: #8c959f } .note { font-size: 12px; fill: #57606a }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 } .ours { fill: #3fb68b } .theirs { fill: #6e7681 } .note { fill: #9198a1 }
}
"""


def result(name: str) -> Any:
    """A saved result of a benchmark."""
    return json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text(encoding="utf-8"))


def target(saved: Any, name: str) -> float:
    """A ratio to torch's DataLoader that the benchmark compared with its target."""
    return float(next(each["value"] for each in saved["targets"] if each["name"] == name))


def bars() -> list[tuple[str, float]]:
    """Each row's words and ratio, the slowest first."""
    programs = result("programs")
    place, packed = result("in_place"), result("loader_in500")
    reference = target(programs, "reference, exact: images/s over torch's")
    return [
        ("torch DataLoader + Pillow", 1.0),
        ("your own Dataset, import changed", reference),
        ("ImageFolder, the first epoch", target(place, "epoch 1 / torch DataLoader")),
        ("packed by fastload pack", target(packed, "fastload / torch DataLoader + Pillow")),
        ("ImageFolder, later epochs", target(place, "epoch 2 / torch DataLoader")),
    ]


def drawn() -> str:
    """The picture."""
    rows = bars()
    longest = max(ratio for _, ratio in rows)
    height = len(rows) * (BAR + GAP) + 56
    said = ", ".join(f"{words} {ratio:.1f}" for words, ratio in rows)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">',
        f"<title>{escape(f'Images a second, times torch: {said}')}</title>",
        f"<style>{STYLE}</style>",
    ]
    for number, (words, ratio) in enumerate(rows):
        y, length = 8 + number * (BAR + GAP), ratio / longest * (WIDTH - LEFT - 70)
        kind = "ours" if number else "theirs"
        parts.append(f'<text x="{LEFT - 10}" y="{y + 18}" text-anchor="end">{escape(words)}</text>')
        parts.append(f'<rect class="{kind}" x="{LEFT}" y="{y}" width="{length:.1f}" height="{BAR}" rx="3"/>')
        parts.append(f'<text x="{LEFT + length + 8:.1f}" y="{y + 18}">{ratio:.1f}&#215;</text>')
    note = "Images a second, as times of torch's DataLoader in the same run: random crops of 224, 2 cores, 2 workers or threads."
    parts.append(f'<text class="note" x="10" y="{height - 28}">{escape(note)}</text>')
    commands = "benchmarks/bench_programs.py, bench_in_place.py, bench_loader.py"
    parts.append(f'<text class="note" x="10" y="{height - 10}">{escape(commands)}</text>')
    return "\n".join([*parts, "</svg>", ""])


if __name__ == "__main__":
    PICTURE.write_text(drawn(), encoding="utf-8")
