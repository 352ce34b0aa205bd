"""``fastload bench`` end to end on a tiny dataset; no assertion on speed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from PIL import Image
from trace_helpers import events, named
from typer.testing import CliRunner

from fastload.bench import harness, plot, report
from fastload.bench.spec import SHORT
from fastload.cli.bench import bench
from fastload.errors import ArgumentError

COLUMNS = {
    "images_per_s",
    "first_batch_s",
    "next_first_batch_s",
    "epoch_gap_ms",
    "pss_bytes",
    "cpu_s_per_1000",
}


def document(**changes: object) -> harness.Json:
    """A document as ``compare`` makes it, with made-up numbers."""
    columns = dict.fromkeys(COLUMNS, 2.0)
    row: harness.Json = {
        "name": "fastload",
        "title": "fastload",
        "reason": None,
        "images_per_s_spread": 0.1,
        "rounds": [],
        **columns,
    }
    absent = {**row, **dict.fromkeys(COLUMNS), "name": "pillow", "title": "torch", "reason": "no [bold] PIL"}
    machine = {
        "cpu": "CPU",
        "cores": 2,
        "python": "3.11",
        "torch": "2.13",
        "libjpeg_turbo": None,
        "pillow": None,
    }
    made: harness.Json = {
        "fastload_bench": harness.SCHEMA,
        "dataset": "d.fl",
        "machine": machine,
        "settings": {"size": 224, "batch_size": 64, "workers": 2, "rounds": 3},
        "loaders": [row, absent],
        "ratios": {},
    }
    return {**made, **changes}


def test_sentence_prefers_pillow() -> None:
    """The headline is against Pillow where that ran, else against the packed data under torch, else says
    why not."""
    assert report.sentence(document(ratios={"packed": 1.24, "pillow": 2.96})).startswith(
        "fastload is 3.0x torch"
    )
    assert "1.2x torch DataLoader + PackedDataset" in report.sentence(document(ratios={"packed": 1.24}))
    reasons = [{"name": "fastload", "reason": "it broke"}]
    assert "it broke" in report.sentence(document(loaders=reasons))


def test_table_shows_the_reason_of_an_absent_row(capsys: pytest.CaptureFixture[str]) -> None:
    """The reason is printed as it is, markup and all."""
    from rich.console import Console

    report.show(document(), Console(width=160))
    assert "no [bold] PIL" in capsys.readouterr().out


def test_the_table_fits_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    """Large numbers in every column, on a terminal of 80 columns: nothing is cut, and a column without a
    number is not shown."""
    from rich.console import Console

    (ours, _) = document()["loaders"]
    rows = [
        {
            **ours,
            "name": name,
            "images_per_s": 123456.0,
            "first_batch_s": 1.2345,
            "epoch_gap_ms": 1234.5,
            "pss_bytes": 1.2e10,
        }
        for name in SHORT
    ]
    report.show(document(loaders=rows), Console(width=80))
    table = capsys.readouterr().out
    assert max(map(len, table.splitlines())) <= 80
    for text in ("123,456", "10%", "1,234.5", "12,000", "2.00", *SHORT.values()):
        assert text in table
    report.show(document(loaders=[{**row, "pss_bytes": None} for row in rows]), Console(width=80))
    assert "PSS, MB" not in capsys.readouterr().out


def test_a_busy_machine_is_named() -> None:
    """Rates taken while others used the machine come with a warning; a quiet or silent machine with none."""
    assert "30%" in (report.disturbance([{"others_share": 0.3}, {"others_share": None}]) or "")
    assert report.disturbance([{"others_share": 0.04}]) is None
    assert report.disturbance([{"others_share": None}]) is None


def test_plot_without_a_row_is_refused(tmp_path: Path) -> None:
    """Nothing to draw, or nowhere to draw it, is an ArgumentError."""
    with pytest.raises(ArgumentError, match="nothing to draw"):
        plot.draw(document(loaders=[]), tmp_path / "x.png")
    with pytest.raises(ArgumentError, match="--plot"):
        plot.draw(document(), tmp_path / "absent" / "x.png")


def test_json_to_nowhere_is_refused(tmp_path: Path) -> None:
    """The path that cannot be written is named."""
    with pytest.raises(ArgumentError, match="--json"):
        harness.write_json(document(), tmp_path / "absent" / "x.json")


def test_command_does_not_import_torch() -> None:
    """``fastload bench --help`` must not wait for torch."""
    code = "import sys, fastload.cli.bench, fastload.bench.harness; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.long
def test_bench_prints_the_table_and_writes_json_png_and_a_trace(
    photo_folder: Path, packed: Path, tmp_path: Path
) -> None:
    """One real run: four loaders, each with every column, a ratio, a JSON of the schema, a PNG that opens.
    The trace is of one more epoch of fastload, after what is measured, with all its steps."""
    app = typer.Typer()
    app.command()(bench)
    out, image, trace = tmp_path / "r.json", tmp_path / "r.png", tmp_path / "run.json"
    short = ["--batch-size", "8", "--workers", "1", "--size", "64", "--rounds", "1", "--seconds", "0"]
    arguments = [
        str(packed),
        "--against",
        str(photo_folder),
        "--json",
        str(out),
        "--plot",
        str(image),
        "--trace",
        str(trace),
    ]
    result = CliRunner().invoke(app, [*arguments, *short], env={"COLUMNS": "80"})
    assert result.exit_code == 0, result.output
    assert "x torch DataLoader + Pillow" in result.output
    table = result.output[: result.output.index("decode +")]
    assert "±" not in table, "one round has no spread, and no column for it"
    assert max(map(len, table.splitlines())) <= 80
    assert "…" not in table
    assert "images/s so far" not in result.output
    found = json.loads(out.read_text())
    assert found["fastload_bench"] == harness.SCHEMA
    assert found["settings"] | {"batch_size": 8, "workers": 1, "rounds": 1} == found["settings"]
    assert [row["name"] for row in found["loaders"]] == ["fastload", "packed", "pillow", "handwritten"]
    for row in found["loaders"]:
        assert row["reason"] is None, row
        assert row.keys() >= COLUMNS
        assert row["images_per_s"] > 0
        assert SHORT[row["name"]] in result.output
    assert set(found["ratios"]) == {"packed", "pillow", "handwritten"}
    assert str(tmp_path) not in out.read_text()
    with Image.open(image) as picture:
        assert picture.format == "PNG"
        assert picture.width > 600
    assert f"trace: {trace}" in result.output.replace("\n", "")
    found = events(trace)
    assert len(named(found, "step")) == 5
    assert named(found, "decode", epoch=1)  # some were decoded ahead, before the trace began
    refused = CliRunner().invoke(app, [str(packed), "--trace", str(tmp_path / "gone" / "run.json"), *short])
    assert refused.exit_code != 0
    assert "--trace" in str(refused.exception)
