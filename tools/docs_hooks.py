"""Hooks of `make docs` (mkdocs.yml): pages made from the code and from benchmark results, and the check of
public names.

A page asks for a generated part by a line `<!-- generated: NAME -->`:

- `cli COMMAND`: the arguments and options of a command of `fastload`.
- `results`: the targets of every file of benchmarks/results.
- `peers WORK`: bench_peers.py's table of one of its works.
- `rates WORK,WORK`: its rates and CPU times at several works, side by side.
- `names MODULE`: mkdocstrings' directives for every public name of a module.
"""

from __future__ import annotations

import importlib
import inspect
import json
import re
from collections.abc import Iterator, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fastload.cli.help import Parameter

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
PUBLIC = (
    *("fastload", "fastload.packing", "fastload.versions", "fastload.transfer"),
    *("fastload.transforms", "fastload.augment", "fastload.health", "fastload.errors"),
)
"""Modules whose public names are for users: each has a docstring and a place in docs/reference."""
WORDS_MOST = 28_000
"""Limit on the words of all built pages for users, code, tables and the text of docstrings included."""
_NOT_FOR_USERS = ("404.html", "architecture.html", "format.html")
_INLINE = ("a", "abbr", "b", "code", "em", "i", "span", "strong", "sub", "sup")
"""Elements at whose edges no word ends: `f(x)` is one word, though its colours are four elements."""
_COMMON = {"--quiet", "--storage-option", "--timeout", "--batch-size", "--size"}
_DATASETS = ("A packed dataset.", "A packed dataset: its folder, or its URL.")
"""Options, and texts of arguments, that the beginning of the page of the command line explains."""
_RESULTS = ("Summary", "Report", "BadSample", "Notice", "PackOptions")
"""Ends of the names of results, and of what is made with them."""
_OF_RESULTS = """    options:
      separate_signature: false
      show_signature: false
      show_labels: false
      filters: ["!^_", "!^(of|stored|as_dict|shrinks)$"]
"""
"""Options of mkdocstrings for results: those of their methods that only the package calls are left out."""
_OF_PROTOCOLS = """    options:
      members: false
"""
"""Options of mkdocstrings for a protocol: a page explains its methods by an example."""
_PART = re.compile(r"^<!-- generated: (\S+)(?: (\S+))? -->$", re.MULTILINE)


# ---- public names ------------------------------------------------------------------------------------------


def public_names(module: str) -> dict[str, Any]:
    """Public names of a module, with what they are: `__all__`, or what the module itself defines."""
    loaded = importlib.import_module(module)
    names = getattr(loaded, "__all__", None)
    if names is None:
        names = [
            name
            for name, value in vars(loaded).items()
            if getattr(value, "__module__", "") == module and not name.startswith("_")
        ]
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
                own = isinstance(code, property) or (
                    inspect.isfunction(code) and code.__qualname__ == f"{value.__name__}.{member}"
                )
                if own and not member.startswith("_") and not inspect.getdoc(code):
                    yield f"{module}.{name}.{member}"


def missing_from_reference() -> Iterator[str]:
    """Public names that no page of docs/reference shows."""
    text = "\n".join(expand(page.read_text()) for page in sorted((ROOT / "docs" / "reference").glob("*.md")))
    shown = set(re.findall(r"^::: (\S+)$", text, re.MULTILINE))
    names = [(f"{module}.{name}", value) for module in PUBLIC for name, value in public_names(module).items()]
    # A class that two rooms have is shown in one place.
    elsewhere = [value for name, value in names if name in shown and inspect.isclass(value)]
    for name, value in names:
        home = f"{getattr(value, '__module__', '')}.{name.rpartition('.')[2]}"
        if not inspect.ismodule(value) and not {name, home} & shown and value not in elsewhere:
            yield name


def _directives(module: str) -> str:
    """A directive for each public name. A result, which only the package makes, is shown without the
    signature of its constructor, which would repeat its attributes."""
    names = [(name, value) for name, value in public_names(module).items() if not inspect.ismodule(value)]
    return "\n".join(
        f"::: {getattr(value, '__module__', module)}.{name}\n{_options(name, value)}" for name, value in names
    )


def _options(name: str, value: object) -> str:
    if name.endswith(_RESULTS):
        return _OF_RESULTS
    return _OF_PROTOCOLS if getattr(value, "_is_protocol", False) else ""


# ---- the command line --------------------------------------------------------------------------------------


def _command(name: str) -> str:
    """A command of `fastload`: its usage line, what it does, and its arguments and options: a table, or the
    public function that takes them."""
    from fastload.cli.help import parameters, usage
    from fastload.cli.main import COMMANDS

    run = COMMANDS[name]
    lines = ["```text", f"fastload {usage(name, run)}", "```", "", inspect.getdoc(run) or "", ""]
    public, path, arguments = _function(name)
    shown = parameters(run)
    if public:
        absent = arguments.difference(*(_keywords(each.names) for each in shown))
        but = f", but {', '.join(f'`{each}`' for each in sorted(absent))}" if absent else ""
        return "\n".join([*lines, f"Arguments: [`{public}`][{path}]{but}."])
    own = [each for each in shown if not _is_common(name, each)]
    for each in own:
        default = f"`{each.default}`" if each.default else ""
        # In a span of code a bar is no border of a cell, and a backslash would be shown.
        lines.append(
            f"| `{each.label}` | {default} | {_text(each.text)}{f' ({each.bounds})' if each.bounds else ''} |"
        )
    lines[-len(own) : -len(own)] = ["| | | |", "|---|---|---|"]
    return "\n".join(lines)


def _is_common(name: str, each: Parameter) -> bool:
    """True for arguments and options that the beginning of the page explains for several commands."""
    return name != "run" and (bool(_COMMON & set(each.names)) or each.text in _DATASETS)


def _keywords(names: Sequence[str]) -> set[str]:
    """Keywords of Python that the names of an option are for."""
    known = {"--quiet": "progress", "--storage-option": "storage_options"}
    return {known.get(name, name[2:].replace("-", "_")) for name in names if name.startswith("--")}


def _function(name: str) -> tuple[str, str, set[str]]:
    """The public function that a command runs: its name, where it is defined, and its keywords; nothing for a
    command without one."""
    for module in PUBLIC[1:]:
        value = public_names(module).get(name)
        if inspect.isfunction(value):
            parameters = inspect.signature(value).parameters.values()
            keywords = {each.name for each in parameters if each.kind is each.KEYWORD_ONLY}
            return f"{module}.{name}", f"{value.__module__}.{name}", keywords
    return "", "", set()


# ---- benchmark results -------------------------------------------------------------------------------------


def _results() -> str:
    """Saved results whose targets were all met in a sentence, and a table of the others with each target
    that was missed, or not measured."""
    met, none = [], []
    rows = ["| result | met | missed: value (target) |", "|---|---:|---|"]
    for path in sorted(RESULTS.glob("*.json")):
        targets = json.loads(path.read_text()).get("targets") or []
        missed = [each for each in targets if not each["met"]]
        if missed:
            told = _text("<br>".join(_missed(missed)))
            rows.append(f"| {path.stem} | {len(targets) - len(missed)} of {len(targets)} | {told} |")
        elif targets:
            met.append(f"`{path.stem}` ({len(targets)})")
        else:
            none.append(f"`{path.stem}`")
    told = f"All targets, as many as in brackets, are met by {', '.join(met)}."
    return "\n".join([told, f"Without targets: {', '.join(none)}.", "", *rows])


def _missed(targets: list[dict[str, Any]]) -> Iterator[str]:
    """Missed targets as `CASE: MEASURE: VALUE (TARGET)`; several cases with one measure and target as
    `MEASURE (TARGET): CASE VALUE; CASE VALUE`."""
    groups: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for each in targets:
        case, _, measure = each["name"].rpartition(": ")
        groups.setdefault((measure, _bound(each)), []).append((case, _far_enough(each)))
    for (measure, bound), cases in groups.items():
        if len(cases) == 1:
            ((case, value),) = cases
            yield f"{case}{': ' if case else ''}{measure}: {value} ({bound})"
        else:
            yield f"{measure} ({bound}): " + "; ".join(f"{case} {value}" for case, value in cases)


def _far_enough(target: dict[str, Any]) -> str:
    """A missed target's value, with as many digits as tell it from the target; "-" if not measured."""
    value, bound = target["value"], target["bound"]
    shown = _number(value) or "-"
    for digits in range(4, 18):
        if value is None or bound is None or float(shown.replace(",", "")) != bound:
            break
        shown = f"{value:.{digits}g}"
    return shown


def _peers(work: str) -> str:
    """A table of the loaders that bench_peers.py measured at a work with two workers. What cannot be
    installed has its error there."""
    return "\n".join(
        [
            "| loader | rate | CPU | PSNR | first batch, s | MB | how |",
            "|---|---:|---:|---:|---:|---:|---|",
        ]
        + [
            _row(
                row["title"],
                *(row[figure] for figure in ("to_pillow", "cpu_s_per_1000", "psnr", "first_batch_s")),
                row["pss_bytes"] and row["pss_bytes"] * 1e-6,
                row["reason"] or ", ".join([row["computes"], *_unlike(row)]),
            )
            for row in _measured(work)
        ]
    )


def _rates(given: str) -> str:
    """A table of the rates and CPU times that bench_peers.py measured at some works."""
    works = given.split(",")
    found = [{row["title"]: row for row in _measured(work)} for work in works]
    return "\n".join(
        [
            f"| loader | {' | '.join(f'{work}: rate | CPU' for work in works)} |",
            f"|---|{'---:|' * 2 * len(works)}",
        ]
        + [
            _row(
                title,
                *(
                    rows.get(title, {}).get(figure)
                    for rows in found
                    for figure in ("to_pillow", "cpu_s_per_1000")
                ),
            )
            for title in dict.fromkeys(title for rows in found for title in rows)
        ]
    )


def _measured(work: str) -> list[dict[str, Any]]:
    """Rows of bench_peers.py's result at a work with two workers, the slowest first."""
    rows = json.loads((RESULTS / "peers.json").read_text())["peers"]
    chosen = [row for row in rows if (row["work"], row["workers"]) == (work, 2)]
    return sorted(chosen, key=lambda row: row["to_pillow"] or 0.0)


def _unlike(row: dict[str, Any]) -> Iterator[str]:
    """What a peer's batches have other than antialiased uint8 images."""
    if row["antialias"] == "no":
        yield "not antialiased"
    elif row["antialias"] != "yes":
        yield f"antialiased by {row['antialias']}"
    if row["output"] != "uint8":
        yield row["output"]


def _row(*cells: str | float | None) -> str:
    """A line of a table."""
    return f"| {' | '.join(_text(cell) if isinstance(cell, str) else _number(cell) for cell in cells)} |"


def _decoders(_: str) -> str:
    """A table of the decoders that bench_imread.py ran in its harness: rates as times of Pillow's under
    torch's DataLoader."""
    document = json.loads((RESULTS / "imread.json").read_text())
    workers = document["workers"].split(",")[0]
    columns = {"memory": "no loader", f"torch{workers}": "DataLoader", f"fastload{workers}": "FastLoader"}
    rows = sorted(document["rows"], key=lambda row: row["memory"] or 0.0, reverse=True)
    return "\n".join(
        [f"| decoder | {' | '.join(columns.values())} |", "|---|" + "---:|" * len(columns)]
        + [_row(row["decoder"], *(row[key] for key in columns)) for row in rows]
    )


def _bound(target: dict[str, Any]) -> str:
    return (
        "no bound" if target["bound"] is None else f"{'≤' if target['at_most'] else '≥'} {target['bound']:g}"
    )


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _text(text: str) -> str:
    return text.replace("|", "\\|")


# ---- mkdocs ------------------------------------------------------------------------------------------------


def expand(markdown: str) -> str:
    """A page's text with its generated parts in it."""

    def part(match: re.Match[str]) -> str:
        parts = {
            "cli": _command,
            "decoders": _decoders,
            "names": _directives,
            "peers": _peers,
            "rates": _rates,
        }
        made = parts.get(match[1])
        return _results() if made is None else made(match[2])

    return _PART.sub(part, markdown)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Called by mkdocs with each page. The plot lies in benchmarks/results for readers of the repository,
    beside the pages on the site."""
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


class _Article(HTMLParser):
    """The text of a built page, without the navigation around it."""

    def __init__(self) -> None:
        super().__init__()
        self._depth = 0
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._depth += tag == "article"
        self._part(tag)

    def handle_endtag(self, tag: str) -> None:
        self._depth -= tag == "article"
        self._part(tag)

    def _part(self, tag: str) -> None:
        if tag not in _INLINE:
            self.text.append(" ")

    def handle_data(self, data: str) -> None:
        if self._depth:
            self.text.append(data)


def words(site: Path) -> dict[str, int]:
    """Words of each built page for users, code and tables included, by its path."""
    found = {}
    for page in sorted(site.rglob("*.html")):
        name = page.relative_to(site).as_posix()
        if name not in _NOT_FOR_USERS:
            article = _Article()
            article.feed(page.read_text(encoding="utf-8"))
            found[name] = len("".join(article.text).split())
    return found


def on_post_build(config: Any) -> None:
    """Called by mkdocs last. Ends the build where the pages for users have grown."""
    from mkdocs.exceptions import PluginError

    found = words(Path(config.site_dir))
    if sum(found.values()) > WORDS_MOST:
        raise PluginError(
            f"{sum(found.values()):,} words in the pages for users, at most {WORDS_MOST:,}: {found}"
        )


def on_config(config: Any) -> Any:
    """Called by mkdocs with its settings: the repository that pages link to is the Source of
    pyproject.toml."""
    source = re.search(
        r'^Source = "(\S+)"$', (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE
    )
    if source is not None:
        config.repo_url = source[1]
        config.repo_name = "fastload"
    return config
