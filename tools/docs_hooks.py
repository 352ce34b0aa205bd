"""Hooks of `make docs` (mkdocs.yml): pages made from the code and from benchmark results, and the check of public names.

A page asks for a generated part by a line `<!-- generated: NAME -->`:

- `cli COMMAND`: the arguments and options of a command of `fastload`.
- `results`: every file of benchmarks/results as tables.
- `peers WORK`: bench_peers.py's table of one of its works.
- `names MODULE`: mkdocstrings' directives for every public name of a module.
"""

from __future__ import annotations

import importlib
import inspect
import json
import re
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
PUBLIC = (
    *("fastload", "fastload.packing", "fastload.versions", "fastload.transfer"),
    *("fastload.transforms", "fastload.augment", "fastload.health", "fastload.errors"),
)
"""Modules whose public names are for users: each has a docstring and a place in docs/reference."""
_PART = re.compile(r"^<!-- generated: (\S+)(?: (\S+))? -->$", re.MULTILINE)


# ---- public names ---------------------------------------------------------------------------------------------------


def public_names(module: str) -> dict[str, Any]:
    """Public names of a module, with what they are: `__all__`, or what the module itself defines."""
    loaded = importlib.import_module(module)
    names = getattr(loaded, "__all__", None)
    if names is None:
        names = [name for name, value in vars(loaded).items() if getattr(value, "__module__", "") == module and not name.startswith("_")]
    return {name: getattr(loaded, name) for name in names if not name.startswith("__")}


def undocumented() -> Iterator[str]:
    """Names of public objects, and of their public methods and properties, that have no docstring."""
    for module in PUBLIC:
        for name, value in public_names(module).items():
            if not inspect.getdoc(value):
                yield f"{module}.{name}"
            if not inspect.isclass(value):
                continue
            for member, defined in vars(value).items():
                code = defined.__func__ if isinstance(defined, classmethod | staticmethod) else defined
                own = isinstance(code, property) or (inspect.isfunction(code) and code.__qualname__ == f"{value.__name__}.{member}")
                if own and not member.startswith("_") and not inspect.getdoc(code):
                    yield f"{module}.{name}.{member}"


def missing_from_reference() -> Iterator[str]:
    """Public names that no page of docs/reference shows."""
    text = "\n".join(expand(page.read_text()) for page in sorted((ROOT / "docs" / "reference").glob("*.md")))
    shown = set(re.findall(r"^::: (\S+)$", text, re.MULTILINE))
    for module in PUBLIC:
        for name, value in public_names(module).items():
            places = {f"{module}.{name}", f"{getattr(value, '__module__', '')}.{name}"}
            if not inspect.ismodule(value) and not places & shown:
                yield f"{module}.{name}"


def _directives(module: str) -> str:
    names = [(name, value) for name, value in public_names(module).items() if not inspect.ismodule(value)]
    return "\n".join(f"::: {getattr(value, '__module__', module)}.{name}\n" for name, value in names)


# ---- the command line -----------------------------------------------------------------------------------------------


def _command(name: str) -> str:
    """A command of `fastload`: its usage line, what it does, and a table of its options, from the function's annotations."""
    from fastload.cli.help import parameters, usage
    from fastload.cli.main import COMMANDS

    run = COMMANDS[name]
    lines = ["```text", f"fastload {usage(name, run)}", "```", "", inspect.getdoc(run) or "", ""]
    lines += ["| argument or option | default | |", "|---|---|---|"]
    for each in parameters(run):
        default = f"`{each.default}`" if each.default else ""
        # In a span of code a bar is no border of a cell, and a backslash would be shown.
        lines.append(f"| `{each.label}` | {default} | {_text(each.text)}{f' ({each.bounds})' if each.bounds else ''} |")
    return "\n".join(lines)


# ---- benchmark results ----------------------------------------------------------------------------------------------


def _results() -> str:
    """Every saved result, one section a file."""
    return "\n\n".join(_result(path) for path in sorted(RESULTS.glob("*.json")))


def _result(path: Path) -> str:
    document = json.loads(path.read_text())
    facts = ", ".join(
        f"{name} {value}" for name, value in document["machine"].items() if name in ("python", "torch", "libjpeg_turbo", "pillow")
    )
    when = f"{document['date']}, " if "date" in document else ""
    lines = [
        f"### {path.stem}",
        "",
        f"`benchmarks/bench_{document['benchmark']}.py`, {when}{document['rounds']} rounds, {document['machine']['cpu']}, {facts}.",
    ]
    if document.get("targets"):
        lines += ["", "| target | measured | bound | met |", "|---|---:|---:|---|", *map(_target, document["targets"])]
    for key, value in document.items():
        if key not in ("targets", "machine"):
            lines += _tables(key, value)
    return "\n".join(lines)


def _peers(work: str | None) -> str:
    """A table of the loaders that bench_peers.py measured at a work; what could not be installed has its error in the last column."""
    rows = [row for row in json.loads((RESULTS / "peers.json").read_text())["peers"] if row["work"] == work]
    figures = ("workers", "to_pillow", "cpu_s_per_1000", "psnr", "first_batch_s", "epoch_gap_ms", "pss_bytes")
    head = [
        "| loader | workers | rate | CPU | PSNR | first batch, s | gap, ms | MB | antialiased | batches | work |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---|---|---|",
    ]
    return "\n".join(
        head
        + [
            f"| {_text(row['title'])} |"
            + "".join(f" {_number(row[figure] and row[figure] * (1e-6 if figure == 'pss_bytes' else 1))} |" for figure in figures)
            + f" {row['antialias']} | {row['output']} | {_text(row['reason'] or row['computes'])} |"
            for row in sorted(rows, key=lambda row: (row["workers"], row["to_pillow"] or 0.0))
        ]
    )


def _tables(key: str, value: Any) -> list[str]:
    """What a result has under a key, as tables; nothing for settings and for series that no table shows."""
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return _rows(key, value)
    if not isinstance(value, dict):
        return []
    if all(isinstance(each, int | float) for each in value.values()):
        head = ["", f"| {_text(key.replace('_', ' '))} | |", "|---|---:|"]
        return head + [f"| {_text(name)} | {_number(each)} |" for name, each in value.items()]
    if "modes" in value:
        return _modes(key, value["modes"])
    return [line for name, each in value.items() for line in _tables(f"{key}: {name}", each)]


def _modes(key: str, modes: dict[str, Any]) -> list[str]:
    """bench_decode's modes, each with one thread and with two."""
    figures = ("images_per_s", "cpu_us", "ratio", "cpu_ratio")
    head = ["", f"| {key} | threads | images/s | CPU us an image | x | x by CPU |", "|---|---:|---:|---:|---:|---:|"]
    return head + [
        f"| `{mode}` | {threads} |" + "".join(f" {_number(turn.get(figure))} |" for figure in figures)
        for mode, by_threads in modes.items()
        for threads, turn in by_threads.items()
    ]


def _target(target: dict[str, Any]) -> str:
    met = {True: "yes", False: "**no**", None: "not measured"}[target["met"]]
    bound = "" if target["bound"] is None else f"{'at most' if target['at_most'] else 'at least'} {target['bound']:g}"
    return f"| {_text(target['name'])} | {_number(target['value'])} | {bound} | {met} |"


_COLUMNS = (
    ("images_per_s", "images/s", 1),
    ("images_per_s_spread", "± of the rounds", 1),
    ("cpu_s_per_1000", "CPU s / 1,000", 1),
    ("first_batch_s", "first batch, ms", 1e3),
    ("epoch_gap_ms", "epoch gap, ms", 1),
    ("pss_bytes", "PSS, MB", 1e-6),
)


def _rows(key: str, rows: list[dict[str, Any]]) -> list[str]:
    """A table of what was measured: the shared columns, or the medians of whatever the rounds have."""
    columns = [column for column in _COLUMNS if any(row.get(column[0]) is not None for row in rows)]
    if columns:
        head = ["", f"| {key} |" + "".join(f" {title} |" for _, title, _ in columns), "|---|" + "---:|" * len(columns)]
        return head + [
            f"| {_text(row.get('title') or row['name'])} |"
            + "".join(f" {_number(None if row.get(name) is None else row[name] * scale)} |" for name, _, scale in columns)
            for row in rows
        ]
    if "seconds" in rows[0]:  # bench_augment: seconds a call, by way of doing it
        ways = list(dict.fromkeys(way for row in rows for way in row["seconds"]))
        head = ["", "| op, milliseconds a batch |" + "".join(f" {way} |" for way in ways), "|---|" + "---:|" * len(ways)]
        return head + [
            f"| {_text(row['op'])} |" + "".join(f" {_number(_median(row['seconds'].get(way), 1e3))} |" for way in ways) for row in rows
        ]
    if "ratios" in rows[0]:
        return ["", f"| {key} | median ratio |", "|---|---:|"] + [
            f"| {_text(row['title'])} | {_number(_median(row['ratios']))} |" for row in rows
        ]
    turns = [turn for row in rows for turn in row.get("rounds", ())]
    numbers = [name for turn in turns for name, value in turn.items() if isinstance(value, int | float)]
    figures = [name for name in dict.fromkeys(numbers) if name != "others_share"]
    if not figures:
        return []
    head = ["", f"| {key} |" + "".join(f" {_text(name.replace('_', ' '))} |" for name in figures), "|---|" + "---:|" * len(figures)]
    return head + [
        f"| {_text(row.get('title') or row['name'])} |"
        + "".join(f" {_number(_median([turn[name] for turn in row['rounds'] if turn.get(name) is not None]))} |" for name in figures)
        for row in rows
    ]


def _median(values: Any, scale: float = 1.0) -> float | None:
    return statistics.median(values) * scale if values else None


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _text(text: str) -> str:
    return text.replace("|", "\\|")


# ---- mkdocs ---------------------------------------------------------------------------------------------------------


def expand(markdown: str) -> str:
    """A page's text with its generated parts in it."""

    def part(match: re.Match[str]) -> str:
        made = {"cli": _command, "names": _directives, "peers": _peers}.get(match[1])
        return _results() if made is None else made(match[2])

    return _PART.sub(part, markdown)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Called by mkdocs with each page. The plot lies in benchmarks/results for readers of the repository, beside the pages on the site."""
    return expand(markdown).replace("](../benchmarks/results/", "](")


def on_files(files: Any, config: Any) -> Any:
    """Called by mkdocs with all files: adds the plot, which lies elsewhere."""
    from mkdocs.structure.files import File

    files.append(File.generated(config, "bench.png", abs_src_path=str(RESULTS / "bench.png")))
    return files


def on_pre_build(**_: Any) -> None:
    """Called by mkdocs first. Ends the build where a public name is not documented."""
    from mkdocs.exceptions import PluginError

    wrong = [f"{name} is public and has no docstring" for name in undocumented()]
    wrong += [f"{name} is public and on no page of docs/reference" for name in missing_from_reference()]
    if wrong:
        raise PluginError("\n".join(wrong))


def on_config(config: Any) -> Any:
    """Called by mkdocs with its settings: the repository that pages link to is the Source of pyproject.toml."""
    source = re.search(r'^Source = "(\S+)"$', (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)
    if source is not None:
        config.repo_url = source[1]
        config.repo_name = "fastload"
    return config
