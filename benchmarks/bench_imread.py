"""Whole JPEGs, decoded by 12 libraries and by fastload in the harness of arXiv 2605.08731.

    git clone https://github.com/ternaus/imread_benchmark
    python benchmarks/bench_imread.py imread_benchmark [--rounds 3] [--workers 2,4] [--save imread]

Method: the harness's own, with its plans, audits and fresh processes: decode-memory decodes files in memory,
one thread; loader-supply hands the same images through torch's DataLoader, batch size 1, spawned workers.
fastload's decoder is registered beside the harness's (benchmarks/imread); its entropy index, regions and
scaled decoding, on which packed data rely, have no part in it. A second campaign runs the same loader-supply
by `fastload run`, so that FastLoader stands in for DataLoader under every decoder. Photographs: the corpus's
in500. Ratios are to Pillow in the same repetition; the median over repetitions is shown. The harness's
TensorFlow decoder is not run: the harness keeps it out of loaders, in an environment of its own. Caveat:
PyTurboJPEG is the last release for libjpeg-turbo 2.1, which Debian 12 has, where the harness pins one for 3.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import common
from rich.table import Table

from fastload.bench.listing import list_folder
from fastload.bench.report import number

sys.path.insert(0, str(Path(__file__).parent / "peers"))

import environments

HOME = common.WORK / "imread"
DECODERS = (
    "ajpegli",
    "fastload",
    "imagecodecs",
    "imageio",
    "jpeg4py",
    "kornia",
    "opencv",
    "pillow",
    "pyvips",
    "simplejpeg",
    "skimage",
    "torchvision",
    "turbojpeg",
)
SEEN = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
REPEATS = 4
"""Times that a timed pass decodes the photographs: the fastest decoder must take LEAST_S."""
LEAST_S = 0.25
ENVIRONMENT = """
import sys
from imread_benchmark.environments.descriptor import capture_current_environment, write_environment_descriptor
found = capture_current_environment(lock_path=sys.argv[1] + "/uv.lock", project_path=sys.argv[1] +
    "/pyproject.toml", dependency_group="mainstream", runner_revision=sys.argv[2])
write_environment_descriptor(sys.argv[3], found)
"""
ABLE = """
import sys
from imread_benchmark.decoders import REGISTRY
data = open(sys.argv[2], "rb").read()
assert REGISTRY[sys.argv[1]]().decode(data).shape[2] == 3
"""


class Harness:
    """A clone of the harness, installed with fastload and the decoders in an environment of its own.

    Args:
        clone: the folder that git cloned.
        source: a CLASS/IMAGE tree of JPEGs.
    """

    def __init__(self, clone: Path, source: Path) -> None:
        self.clone = clone.resolve()
        shutil.rmtree(HOME, ignore_errors=True)
        self.revision = _output(["git", "-C", self.clone, "rev-parse", "HEAD"]).strip()
        self.python = environments.python_of("imread", common.WORK / "peers")
        self._install()
        photos = HOME / "photos"
        photos.mkdir()
        self.files = [path for path, _ in list_folder(source)]
        for path in self.files:
            os.link(path, photos / f"{path.parent.name}-{path.name}")
        self.package = self._package(photos)
        self._say(ENVIRONMENT, self.clone, self.revision, HOME / "environment.json")
        self._command(
            "platform", "capture", "--output", HOME / "platform.json", "--machine-type", "local",
            "--location", "local",
        )  # fmt: skip

    def _install(self) -> None:
        """The harness, fastload's decoder for it, and fastload as it now is."""
        root = common.HERE.parent
        for each in (self.clone, common.HERE / "imread", root):
            _run(
                [self.python, "-m", "pip", "--disable-pip-version-check", "install", "-qq", "--no-deps",
                 "--force-reinstall", each]
            )  # fmt: skip
        site = next(self.python.parent.parent.glob("lib/python*/site-packages"))
        # torchvision beside torch's CPU build: see tests/torchvision_ops.py.
        shutil.copy(root / "tests" / "torchvision_ops.py", site)
        (site / "torchvision_ops.pth").write_text("import torchvision_ops\n", encoding="utf-8")

    def _package(self, photos: Path) -> Path:
        found = self._command(
            "dataset", "package", "--name", "photos", "--workload", f"photos={photos}", "--output-root",
            HOME / "packages", "--provenance-source", "the corpus of fastload's benchmarks",
        )  # fmt: skip
        return Path(json.loads(found)["descriptor"])

    def _command(self, *arguments: object) -> str:
        return _output([self.python.with_name("imread-benchmark"), *arguments])

    def _say(self, code: str, *arguments: object) -> str:
        return _output([self.python, "-c", code, *arguments])

    def unable(self, decoder: str) -> str | None:
        """Why a decoder decodes nothing here; None if it does."""
        done = subprocess.run(
            [self.python, "-c", ABLE, decoder, self.files[0]],
            capture_output=True,
            text=True,
            check=False,
            env=SEEN,
        )
        return environments.last_error(done.stderr) if done.returncode else None

    def campaign(
        self, name: str, decoders: Sequence[str], protocols: common.Json, rounds: int, python: Path
    ) -> Iterator[common.Json]:
        """Runs a plan; each of its runs with `decoder_id`, `repetition`, `workers` and `rate`."""
        root = HOME / name
        root.mkdir()
        template = root / "template.yaml"
        template.write_text(json.dumps(_plan(name, decoders, protocols, rounds)), encoding="utf-8")
        self._command(
            "plan", "instantiate", template, "--package-descriptor", self.package, "--output-dir", root
        )
        artifacts = root / "artifacts"
        self._command(
            "campaign", "run", root / "photos.yaml", "--package-descriptor", self.package,
            "--environment-descriptor", HOME / "environment.json", "--platform-descriptor",
            HOME / "platform.json", "--artifact-root", artifacts, "--attempts-root", root / "attempts",
            "--runner-revision", self.revision, "--worker-python", python,
        )  # fmt: skip
        for protocol, scope in (("decode-memory", "decoder-capacity"), ("loader-supply", "loader-supply")):
            if protocol in protocols:
                yield from self._published(root / protocol, artifacts, protocol, scope)

    def _published(self, out: Path, artifacts: Path, protocol: str, scope: str) -> Iterator[common.Json]:
        spec = out.with_suffix(".yaml")
        wanted = {
            "schema_version": "2.0",
            "claim_scope": scope,
            "filters": {"config.protocol_id": protocol},
            "statistic": "images_per_second",
            "practical_margin_percent": 5,
            "generator_revision": self.revision,
        }
        spec.write_text(json.dumps(wanted), encoding="utf-8")
        self._command("publish", spec, "--artifact-root", artifacts, "--output-dir", out)
        found = json.loads((out / "results.json").read_text(encoding="utf-8"))
        for group in found["groups"]:
            configuration = group["configuration"]
            for repetition, rate in zip(group["repetitions"], group["raw_run_means"], strict=True):
                yield {
                    "decoder_id": configuration["decoder_id"],
                    "workers": configuration["num_workers"] if protocol == "loader-supply" else None,
                    "repetition": repetition,
                    "rate": rate,
                }


def _plan(name: str, decoders: Sequence[str], protocols: common.Json, rounds: int) -> common.Json:
    """A template of the harness's plans: JSON is YAML too."""
    return {
        "schema_version": "2.0",
        "experiment_name": f"{name}-WORKLOAD_ID",
        "seed": 1,
        "repetitions": rounds,
        "dataset": {
            "descriptor": "PACKAGE_ID/package.json",
            "package_id": "PACKAGE_ID",
            "workload_id": "WORKLOAD_ID",
            "manifest_id": "MANIFEST_ID",
            "selection": {"method": "all", "expected_items": "ITEM_COUNT"},
            "logical_repeat_factor": REPEATS,
        },
        "matrix": {"decoders": {each: {"threads": ["default"]} for each in decoders}, "protocols": protocols},
        "measurement": {
            "warmup_passes": 1,
            "timed_passes_per_run": 1,
            "minimum_timed_seconds": LEAST_S,
            "output_contract": "normalized-rgb",
            "support_policy": "common",
        },
        "execution": {
            "per_run_subprocess": True,
            "run_timeout_seconds": 600,
            "checkpoint_each_run": True,
            "maximum_memory_fraction": 0.6,
        },
    }


def profiles(workers: Sequence[int], alone: bool) -> common.Json:
    """loader-supply with the harness's own settings, by numbers of workers."""
    many = {
        "workers": list(workers),
        "batch_size": 1,
        "prefetch_factor": 1,
        "persistent_workers": True,
        "multiprocessing_start_method": "spawn",
    }
    return {"loader-supply": {"worker_profiles": [*([{"workers": [0], "batch_size": 1}] * alone), many]}}


def _run(command: Sequence[object]) -> None:
    _output(command)


def _output(command: Sequence[object]) -> str:
    """The standard output of a command; ends the script with its last error if it fails. It does not see the
    checkout, whose fastload Python would find beside the one installed."""
    HOME.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, check=False, cwd=HOME, env=SEEN
    )
    if done.returncode:
        text = f"{done.stdout}\n{done.stderr}"
        common.console.print(text[-4000:], markup=False, highlight=False)
        sys.exit(f"{' '.join(str(part) for part in command[:4])} ...: exit code {done.returncode}")
    return done.stdout


def by_run(python: Path) -> Path:
    """A program that starts Python's modules by `fastload run`."""
    program = HOME / "python-fastload"
    program.write_text(f'#!/bin/sh\nexec "{python}" -m fastload run "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    return program


def rows_of(runs: Sequence[common.Json], column: str) -> dict[str, dict[str, float]]:
    """Rates of a decoder by repetition, under the column `column` and its number of workers."""
    found: dict[str, dict[str, float]] = {}
    for run in runs:
        key = "memory" if run["workers"] is None else f"{column}{run['workers']}"
        found.setdefault(f"{run['decoder_id']}/{key}", {})[str(run["repetition"])] = run["rate"]
    return found


def ratios(rates: dict[str, dict[str, float]], decoder: str, key: str, base: str) -> float | None:
    """Median of a decoder's rates over those of `base`, repetition by repetition."""
    mine, other = rates.get(f"{decoder}/{key}"), rates.get(base)
    if not mine or not other:
        return None
    return statistics.median(mine[each] / other[each] for each in mine)


def main() -> int:
    """Runs both campaigns and prints the table."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("harness", type=Path, help="a clone of ternaus/imread_benchmark")
    made.add_argument("--corpus", type=Path)
    made.add_argument("--rounds", type=int, default=3, help="repetitions of each run (default %(default)s)")
    made.add_argument("--workers", default="2,4", help="worker processes (default %(default)s)")
    made.add_argument("--only", default=",".join(DECODERS), help="decoders, separated by commas")
    made.add_argument("--save", metavar="NAME")
    made.add_argument("--check", action="store_true")
    options = made.parse_args()
    workers = [int(each) for each in options.workers.split(",")]
    harness = Harness(options.harness, common.corpus(options.corpus, "in500"))
    reasons = {each: harness.unable(each) for each in options.only.split(",")}
    able = [each for each, reason in reasons.items() if reason is None]
    protocols = {"decode-memory": {}, **profiles(workers, alone=True)}
    rates = rows_of(list(harness.campaign("torch", able, protocols, options.rounds, harness.python)), "torch")
    ours = harness.campaign(
        "fastload", able, profiles(workers, alone=False), options.rounds, by_run(harness.python)
    )
    rates |= rows_of(list(ours), "fastload")
    keys = [
        "memory",
        "torch0",
        *(f"{loader}{count}" for loader in ("torch", "fastload") for count in workers),
    ]
    rows = [
        {
            "decoder": each,
            "reason": reasons[each],
            **{key: ratios(rates, each, key, f"pillow/{key.replace('fastload', 'torch')}") for key in keys},
        }
        for each in reasons
    ]
    rows.sort(key=lambda row: row["memory"] or 0.0)
    show(rows, keys)
    others = [row for row in rows if row["decoder"] != "fastload" and row["memory"]]
    mine = next((row for row in rows if row["decoder"] == "fastload"), None)
    best = max(others, key=lambda row: row["memory"]) if others else None
    targets = [
        common.Target(
            "fastload's decoder to the fastest other, files in memory",
            mine["memory"] / best["memory"] if mine and best and mine["memory"] else None,
            1.2,
        ),
        common.Target(
            f"FastLoader to DataLoader, fastload's decoder, {workers[0]} workers",
            ratios(rates, "fastload", f"fastload{workers[0]}", f"fastload/torch{workers[0]}"),
            1.2,
        ),
    ]
    facts = {"revision": harness.revision, "images": len(harness.files), "rows": rows, "rates": rates}
    return common.finish("imread", options, targets, **facts)


def show(rows: Sequence[common.Json], keys: Sequence[str]) -> None:
    """The table for a terminal of 80 columns."""
    table = Table(title="times Pillow under torch's DataLoader; memory: without a loader")
    table.add_column("decoder")
    for key in keys:
        table.add_column(key, justify="right")
    for row in rows:
        table.add_row(row["decoder"], *(number(row[key], 2) for key in keys))
    common.console.print(table)
    for row in rows:
        if row["reason"] is not None:
            common.console.print(f"{row['decoder']}: {row['reason']}", markup=False, highlight=False)


if __name__ == "__main__":
    sys.exit(main())
