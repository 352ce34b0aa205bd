"""Turns, rounds and ratios; the rivals really run."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastload.bench import harness
from fastload.bench.spec import LoaderKind, TurnSpec
from fastload.common.positions import evenly
from fastload.errors import ArgumentError


def row(name: str, *rates: float | None) -> harness.Measured:
    """A loader with these images/s, round by round."""
    return harness.Measured(name, name, [{"images_per_s": rate} for rate in rates])


def test_ratio_pairs_the_turns_of_a_round() -> None:
    """A machine that halves its speed after round one leaves the ratio alone; a ratio of medians would
    not."""
    assert harness.ratio(row("a", 200, 100, 100), row("b", 100, 50, 20)) == 2.0
    assert harness.ratio(row("a", 200.0, None), row("b", None, 50.0)) is None
    assert harness.ratio(row("a"), row("b", 1.0)) is None


def test_interleave_goes_round_by_round() -> None:
    """A B A B, and each turn is told its round."""
    calls: list[tuple[str, int]] = []

    def turn(name: str) -> harness.Round:
        def run(number: int) -> harness.Json:
            calls.append((name, number))
            return {"ok": True, "images_per_s": 1.0 + number}

        return run

    measured = harness.interleave([("a", "A", turn("a")), ("b", "B", turn("b"))], 2)
    assert calls == [("a", 0), ("b", 0), ("a", 1), ("b", 1)]
    assert [m.median("images_per_s") for m in measured] == [1.5, 1.5]


def test_interleave_drops_a_turn_that_cannot_run() -> None:
    """The row keeps its reason and no numbers, even from rounds that worked; it is not tried again; others
    go on."""
    tried: list[int] = []

    def flaky(number: int) -> harness.Json:
        tried.append(number)
        return (
            {"ok": True, "images_per_s": 9.0}
            if number == 0
            else {"ok": False, "reason": "cv2 is not installed"}
        )

    bad, good = harness.interleave(
        [("x", "X", flaky), ("y", "Y", lambda _n: {"ok": True, "images_per_s": 5.0})], 3
    )
    assert tried == [0, 1]
    assert bad.to_json()["reason"] == "cv2 is not installed"
    assert bad.to_json()["images_per_s"] is None
    assert len(good.turns) == 3


@given(count=st.integers(1, 5000), used=st.integers(1, 5000))
def test_evenly_gives_distinct_ascending_indices(count: int, used: int) -> None:
    """As many as asked for, each in range, none twice, the first of the dataset among them."""
    used = min(used, count)
    indices = evenly(count, used)
    assert len(indices) == used == len(set(indices))
    assert indices == sorted(indices)
    assert indices[0] == 0
    assert indices[-1] < count


def test_spec_survives_its_trip_to_the_child() -> None:
    """JSON and back is the same spec."""
    spec = TurnSpec(
        "pillow", "x.json", images=100, limit=70, batch_size=7, persistent=False, step_ms=1.5, seed=3
    )
    assert TurnSpec.from_json(spec.to_json()) == spec
    assert spec.used == 70


@pytest.mark.parametrize(
    "wrong", [{"batch_size": 0}, {"workers": 0}, {"images": 63}, {"limit": 10}, {"kind": "ffcv"}]
)
def test_spec_refuses_what_cannot_run(wrong: dict[str, object]) -> None:
    """A setting out of range, or fewer images than one batch, is an ArgumentError before any process
    starts."""
    with pytest.raises(ArgumentError):
        TurnSpec(**{"kind": "fastload", "source": "x", "images": 64, **wrong})  # type: ignore[arg-type]


def test_sources_refuse_an_empty_tree(tmp_path: Path) -> None:
    """A folder without CLASS/IMAGE files, or no folder at all, is named in the error."""
    with pytest.raises(ArgumentError, match="no CLASS/IMAGE"):
        harness.Sources(tmp_path)
    with pytest.raises(ArgumentError, match="not a folder"):
        harness.Sources(tmp_path / "absent")


def test_sources_take_a_limit_and_clean_up(photo_folder: Path) -> None:
    """The listing is cut before the LMDB is made, keeps both classes, and nothing is left behind."""
    with harness.Sources(photo_folder, limit=10) as sources:
        assert len(sources.listing) == 10
        assert {label for _, label in sources.listing} == {0, 1}
        folder = sources.lmdb().parent
        assert folder.is_dir()
    assert not folder.exists()


@pytest.mark.long
@pytest.mark.parametrize("kind", ["pillow", "handwritten"])
def test_rival_takes_a_turn(kind: LoaderKind, photo_folder: Path) -> None:
    """A rival's turn in a process of its own gives every column, over whole epochs of whole batches."""
    with harness.Sources(photo_folder) as sources:
        base = TurnSpec("fastload", "", images=40, batch_size=16, workers=1, size=64, seconds=0.0)
        (spec,) = harness.rival_specs(sources, base, [kind])
        result = harness.take_turn(spec, timeout=120)
    assert result["ok"], result
    assert result["epochs"] == 2
    assert result["images"] == 2 * 32
    assert result["images_per_s"] > 0
    assert result["first_batch_s"] > 0
    assert result["cpu_s_per_1000"] > 0
    assert result["epoch_gap_ms"] >= 0
    assert result["others_share"] is None or 0 <= result["others_share"] <= 1


def test_rival_that_fails_says_why(photo_folder: Path) -> None:
    """A failure inside a worker comes back as a reason, not as a crash of the harness."""
    with harness.Sources(photo_folder) as sources:
        base = TurnSpec("fastload", "", images=40, batch_size=8, workers=1, size=64, seconds=0.0)
        (spec,) = harness.rival_specs(sources, base, ["pillow"])
        Path(spec.source).write_text('[["absent.jpg", 0], ["absent.jpg", 0]]', encoding="utf-8")
        result = harness.take_turn(dataclasses.replace(spec, batch_size=2), timeout=120)
    assert not result["ok"]
    assert "absent.jpg" in result["reason"]


def test_missing_library_is_a_reason(
    photo_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without cv2 the hand-written loader's row says so."""
    (tmp_path / "cv2.py").write_text(
        "raise ModuleNotFoundError('No module named cv2', name='cv2')", encoding="utf-8"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with harness.Sources(photo_folder) as sources:
        base = TurnSpec("fastload", "", images=40, batch_size=8)
        (spec,) = harness.rival_specs(sources, base, ["handwritten"])
        assert harness.take_turn(spec, timeout=120) == {"ok": False, "reason": "cv2 is not installed"}


def test_child_that_dies_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A child without a result is a BenchError that names the loader."""
    monkeypatch.setenv("PYTHONHOME", "nowhere")  # the interpreter cannot start
    with pytest.raises(harness.BenchError, match="Pillow"):
        harness.take_turn(TurnSpec("pillow", "x", images=64), timeout=60)
