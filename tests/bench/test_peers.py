"""The programs of `make peers`: the protocol, by a peer whose packages are here, and what becomes of its
answers."""

from __future__ import annotations

import argparse
import importlib
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ROOT / "benchmarks" / "peers"
pytestmark = pytest.mark.skipif(not PROGRAMS.is_dir(), reason="no checkout")
SIZE = 32


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module bench_peers."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    monkeypatch.syspath_prepend(str(PROGRAMS))
    return importlib.import_module("bench_peers")


@pytest.fixture
def task(photo_folder: Path, tmp_path: Path) -> dict[str, Any]:
    """A task's facts: four square photographs of one class, with the listing of them."""
    (tmp_path / "tree" / "cat").mkdir(parents=True)
    listing = []
    for number, source in enumerate(sorted((photo_folder / "cat").iterdir())[:4]):
        into = tmp_path / "tree" / "cat" / f"{number}.jpg"
        with Image.open(source) as opened:
            opened.crop((0, 0, 100, 100)).save(into)
        listing.append((str(into), 0))
    (tmp_path / "listing.json").write_text(json.dumps(listing))
    facts = {
        "tree": str(tmp_path / "tree"),
        "listing": str(tmp_path / "listing.json"),
        "data": str(tmp_path / "data"),
    }
    return {**facts, "batch": 2, "size": SIZE, "workers": 1, "seconds": 0.0}


def answer(peer: str, task: dict[str, Any]) -> dict[str, Any]:
    """What a peer's program answers to a task."""
    paths = os.pathsep.join([str(ROOT), str(PROGRAMS)])
    command = [sys.executable, str(PROGRAMS / f"peer_{peer}.py"), json.dumps(task)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": paths}
    )
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


@pytest.mark.long
@pytest.mark.parametrize("peer", ["pillow", "handwritten"])
def test_peer_speaks_the_protocol(peer: str, task: dict[str, Any], tmp_path: Path, bench: Any) -> None:
    """A peer makes its data, measures whole epochs, and gives crops that are Pillow's, or near them."""
    if peer == "handwritten":
        pytest.importorskip("turbojpeg")
    assert answer(peer, {**task, "task": "make"}) == {"ok": True}
    rate = answer(peer, {**task, "task": "rate"})
    assert rate["ok"], rate
    assert rate["images"] == rate["epochs"] * 4
    out = tmp_path / "crops.npy"
    assert answer(peer, {**task, "task": "crops", "out": str(out)}) == {"ok": True}
    wanted = []
    for path, _ in json.loads(Path(task["listing"]).read_text()):
        with Image.open(path) as opened:
            wanted.append(np.asarray(opened.convert("RGB").resize((SIZE, SIZE), Image.Resampling.BILINEAR)))
    found = bench.psnr(np.load(out), np.stack(wanted))
    assert found == bench.PSNR_MOST if peer == "pillow" else 15 < found < bench.PSNR_MOST


def test_wrong_batch_is_a_reason(task: dict[str, Any]) -> None:
    """A peer that fails says why in its answer, and the run goes on."""
    Path(task["listing"]).write_text(json.dumps([["nothing.jpg", 0]] * 4))
    found = answer("pillow", {**task, "task": "rate"})
    assert not found["ok"]
    assert "nothing.jpg" in found["reason"]


def test_every_peer_has_pins_and_a_program(bench: Any) -> None:
    """The table names programs that are there, with every version stated."""
    for peer in bench.PEERS:
        assert (PROGRAMS / f"peer_{peer.program}.py").is_file()
        pins = (PROGRAMS / "pins" / f"{peer.program}.txt").read_text().split()
        assert pins
        assert all("==" in pin for pin in pins), peer.name


def test_chosen_rows_keep_what_ratios_are_to(bench: Any) -> None:
    """A row that is asked for comes with the two that its ratios need; an unknown one is refused."""
    assert [peer.name for peer in bench.chosen("ffcv")] == [bench.FIRST, "ffcv", bench.OURS]
    with pytest.raises(argparse.ArgumentTypeError, match="no rows: ffvc; rows: dali, "):
        bench.chosen("ffvc")


def test_table_fits_eighty_columns(bench: Any) -> None:
    """Each row is one line of a narrow terminal, with its whole name and nothing cut."""
    result = json.loads((ROOT / "benchmarks" / "results" / "peers.json").read_text())["peers"]
    rows = [row for row in result if (row["work"], row["workers"], row["reason"]) == ("crop", 2, None)]
    printed = io.StringIO()
    Console(width=80, file=printed).print(bench.shown(result, "crop", 2))
    lines = [line.split() for line in printed.getvalue().splitlines()]
    for row in rows:
        shown = [f"{row['images_per_s']:,.0f}", f"{row['to_pillow']:.2f}", f"{row['fastload_to_it']:.2f}"]
        assert [row["name"], *shown] in [line[:4] for line in lines]
    assert "…" not in printed.getvalue()


def test_installers_error_is_one_line(bench: Any) -> None:
    """Of what pip prints, the exception is kept."""
    said = (
        "Traceback (most recent call last):\n      RuntimeError: no package opencv4.\n error: "
        "subprocess-exited-with-error\n"
    )
    assert bench.environments.last_error(said) == "RuntimeError: no package opencv4."


def test_rows_of_a_later_run_join_those_that_were_saved(bench: Any) -> None:
    """Chosen rows take their place in the order of peers, the note says of which run they are, and the rows
    that ratios are to stay."""
    saved = {
        "note": None,
        "peers": [{"name": name, "rate": 1} for name in ("pillow", "dali", "ffcv", "fastload-packed")],
        "pins": {"dali": ["a==1"], "ffcv": ["b==1"]},
    }
    new = [{"name": name, "rate": 2} for name in ("pillow", "dali", "dali-dynamic", "fastload-packed")]
    made = bench.joined(saved, new, {"dali": ["a==2"]})
    order = [peer.name for peer in bench.PEERS]
    rates = {row["name"]: row["rate"] for row in made["peers"]}
    assert rates == {"pillow": 1, "ffcv": 1, "dali": 2, "dali-dynamic": 2, "fastload-packed": 1}
    assert list(rates) == sorted(rates, key=order.index)
    assert made["note"].startswith("dali, dali-dynamic: of 2")
    assert made["pins"] == {"dali": ["a==2"], "ffcv": ["b==1"]}
