"""``fastload tune`` end to end on a tiny dataset and on scripts; no assertion on speed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from click.testing import Result
from typer.testing import CliRunner

from fastload.bench.spec import TurnSpec
from fastload.cli.tune import tune
from fastload.errors import ArgumentError, DatasetError
from fastload.store import DatasetReader
from fastload.store.kinds.codecs import DCT, JPEG
from fastload.tune.caches import CACHE
from fastload.tune.choose import choose
from fastload.tune.dataset import worker_counts
from fastload.tune.document import Tuned
from fastload.tune.forms import forms, pack_forms
from fastload.tune.report import lines
from fastload.tune.trials import Setting, Trial, TuneError

VERDICTS = ("chosen", "clearly slower", "no clear difference")


def run(*arguments: object) -> Result:
    """Runs the command; a script's process has its output on this one's stderr."""
    app = typer.Typer()
    app.command()(tune)
    return CliRunner().invoke(app, [*map(str, arguments)], env={"COLUMNS": "80"})


def checked(text: str) -> dict[str, Any]:
    """A document, after its schema and the agreement of its measurements with its choices were checked."""
    document: dict[str, Any] = json.loads(text)
    assert document.keys() == {
        "fastload_tune",
        "work",
        "machine",
        "others_share",
        "trials",
        "skipped",
        "advice",
    }
    assert document["fastload_tune"] == 1
    for trial in document["trials"]:
        rows = {str(row["value"]): row for row in trial["values"]}
        assert str(trial["default"]) in rows
        assert rows[str(trial["chosen"])]["verdict"] == "chosen"
        assert choose(
            {name: row["rounds"] for name, row in rows.items()}, str(trial["default"])
        ).value == str(trial["chosen"])
        for row in rows.values():
            assert row["verdict"].startswith(VERDICTS) or row["verdict"].endswith("rounds: not known")
            assert row["samples_per_s"] > 0
    assert document["advice"].keys() == {"arguments", "line", "convert", "cache_share"}
    return document


def test_a_dataset(packed: Path) -> None:
    """Every setting is tried or has a reason, the choice follows from the rounds in the document, and the
    table says the same."""
    done = run(packed, "--json", "--seconds", "2", "--batch-size", "8", "--size", "32")
    assert done.exit_code == 0, done.output
    assert "this takes about 2 s" in done.stderr
    document = checked(done.stdout)
    settings = [trial["setting"] for trial in document["trials"]]
    assert {"prefetch_factor", "memory_format"} <= set(settings)
    assert {"encode", "cache size"} <= {*settings, *document["skipped"]}
    assert (
        document["work"] | {"dataset": packed.name, "batch_size": 8, "size": 32, "seconds": 2.0}
        == document["work"]
    )
    assert document["advice"]["line"].startswith(f'loader = FastLoader("{packed}", batch_size=8')
    shown = list(lines(document))
    assert document["advice"]["line"] in shown
    assert {*settings} <= {*shown}
    assert max(len(line) for line in shown if line.startswith("  ")) <= 80


SCRIPT = """
import sys
import torch
from torch.utils.data import DataLoader, TensorDataset
def main():
    print("arguments:", sys.argv[1:])
    data = TensorDataset(torch.arange(64.0))
    try:
        for batch in DataLoader({data}, batch_size=4):
            pass
        print("a whole epoch")
    finally:
        print("at the end")
if __name__ == "__main__":
    main()
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """A program that iterates one loader."""
    path = tmp_path / "train.py"
    path.write_text(SCRIPT.format(data="data"))
    return path


def test_a_script(script: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Its first loader is tried with the script's arguments, and the script goes no further; its output is
    not on stdout."""
    done = run(script, "--json", "--seconds", "1", "--", "--lr", "0.1")
    out, err = capfd.readouterr()
    assert done.exit_code == 0, done.output + err
    document = checked(done.stdout)
    assert out == ""
    assert "arguments: ['--lr', '0.1']" in err
    assert "a whole epoch" not in err
    assert "at the end" not in err
    assert (
        document["work"] | {"script": "train.py", "dataset": "TensorDataset", "samples": 64, "batch_size": 4}
        == document["work"]
    )
    (trial, *_) = document["trials"]
    assert (trial["setting"], trial["default"]) == ("num_workers", 0)
    assert document["advice"]["line"].startswith("loader = DataLoader(...")


@pytest.mark.long
@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (
            "type('Stream', (torch.utils.data.IterableDataset,), {'__iter__': lambda self: "
            "iter(range(9))})()",
            "IterableDataset",
        ),
        ("[1, 2, 3, 4, object()]", "fails in a trial"),
    ],
    ids=("iterable", "fails"),
)
def test_a_script_whose_loader_cannot_be_tried(
    script: Path, data: str, reason: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """It ends at its loader all the same, and the error says why."""
    script.write_text(SCRIPT.replace("{data}", data))
    assert isinstance(error := run(script, "--seconds", "1").exception, TuneError)
    assert str(error).startswith(f"{script}: the loader of ")
    assert reason in str(error)
    assert "a whole epoch" not in capfd.readouterr().err


def test_a_script_that_ends_before_it_has_a_loader(tmp_path: Path) -> None:
    """Its status is in the error."""
    script = tmp_path / "train.py"
    script.write_text("raise SystemExit(3)")
    assert "ended with status 3 before it iterated a loader" in str(run(script).exception)


def test_refusals(tmp_path: Path) -> None:
    """What cannot be tuned is refused before anything runs."""
    for arguments, reason in (
        (["absent.py"], "absent.py: there is no such file"),
        (["data.fl", "--timeout", "3"], "data.fl: --storage-option and --timeout are for a dataset at a URL"),
        (["data.fl", "more"], r"more: only a script \(.py\) has arguments, and data.fl is none"),
    ):
        with pytest.raises(ArgumentError, match=reason):
            raise run(*arguments).exception or AssertionError(arguments)
    assert isinstance(run(tmp_path / "absent.fl").exception, DatasetError)
    assert run(tmp_path, "--seconds", "0").exit_code == 2


def test_forms_hold_the_same_images(packed: Path, tmp_path: Path) -> None:
    """JPEGs are packed anew, as files and in the DCT form, of the same samples; a dataset in the DCT form
    is recognised as one."""
    setting, _ = forms(packed)
    assert setting is not None
    assert setting.values == ("jpeg", "dct")
    made = pack_forms(TurnSpec("fastload", str(packed), images=50, batch_size=1), setting.values, tmp_path)
    for value, codec in (("jpeg", JPEG), ("dct", DCT)):
        path, count = made[value]
        with DatasetReader(path) as reader, DatasetReader(packed) as whole:
            assert reader.count == whole.count == count
            kinds = [reader.stored_fields(position)[0][0] for position in range(count)]
            assert set(kinds) == {codec.entry}
    again, _ = forms(made["dct"][0])
    assert again is not None
    assert (again.values, again.default) == (("dct", "jpeg"), "dct")


def test_the_smallest_cache_that_is_as_good_is_named() -> None:
    """Equal rates choose the smallest cache, of which the document and the table say the share."""
    rates = dict.fromkeys(CACHE.values, [200.0] * 20)
    document = Tuned([Trial(CACHE, rates, choose(rates, CACHE.default))], {}, {}, None).to_json(
        {}, 'FastLoader("s3://b/d"', "s3://b/d"
    )
    assert document["advice"]["cache_share"] == 0.25
    assert "A cache (cache_size) of 25% of the dataset is as good as one of all of it." in lines(document)


def test_threads_to_try() -> None:
    """Powers of two and the CPUs, each once."""
    assert [worker_counts(cpus) for cpus in (1, 2, 6, 8)] == [(1,), (1, 2), (1, 2, 4, 6), (1, 2, 4, 8)]


def test_the_line_names_what_was_chosen_and_nothing_else() -> None:
    """Arguments as Python writes them, without those that stay; and the command of the faster form."""

    def trial(name: str, values: tuple[Any, ...], chosen: Any) -> Trial:
        rates = {str(value): [200.0 if value == chosen else 100.0] * 20 for value in values}
        return Trial(Setting(name, values, values[0]), rates, choose(rates, str(values[0])))

    trials = [
        trial("num_workers", (2, 1), 1),
        trial("prefetch_factor", (2, 4), 2),
        trial("memory_format", ("contiguous", "channels_last"), "channels_last"),
        trial("encode", ("jpeg", "dct"), "dct"),
    ]
    arguments = {each.setting.name: each.value for each in trials[:3]}
    document = Tuned(trials, arguments, {}, 0.5).to_json({}, 'FastLoader("a b.fl"', "a b.fl")
    assert document["advice"] == {
        "arguments": {"num_workers": 1, "memory_format": "channels_last"},
        "line": 'loader = FastLoader("a b.fl", num_workers=1, memory_format=torch.channels_last)',
        "convert": ["fastload", "convert", "--encode", "dct", "a b.fl", "OUT"],
        "cache_share": None,
    }
    shown = list(lines(document))
    assert "  1                    200                          chosen" in shown
    assert "  2                    100  0.50 (0.50 to 0.50)     clearly slower" in shown
    assert "fastload convert --encode dct 'a b.fl' OUT" in shown
    assert any("other processes took up to 50%" in line for line in shown)
