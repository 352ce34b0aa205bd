"""The documentation is true where a machine can tell: commands and programs run, links and paths lead
somewhere, NOTEs are in the index."""

from __future__ import annotations

import ast
import inspect
import io
import json
import os
import re
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import architecture_lists
import docs_hooks
import pytest
import torch
import warm
from annotated_folders import write_layouts
from docs_helpers import PAGES, ROOT, blocks, name_of, side
from pictures import photo, write_folder
from servers.seaweedfs import SeaweedFS

import fastload
from fastload import errors, pack, push, sources

RUN = [
    page
    for page in PAGES
    if page.name != "format.md" and any(block.language in ("sh", "python", "diff") for block in blocks(page))
]
MIGRATIONS = [page for page in PAGES if any(block.language == "diff" for block in blocks(page))]
DOCUMENTS = [*PAGES, *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md"))]


def write_tars(folder: Path) -> None:
    """Two small tars of the kind that WebDataset reads."""
    for number in range(2):
        with tarfile.open(folder / f"train-{number:03d}.tar", "w") as tar:
            for index in range(8):
                buffer = io.BytesIO()
                photo(8 * number + index, 80, 90).save(buffer, "JPEG")
                for extension, data in (("jpg", buffer.getvalue()), ("cls", b"%d" % (index % 3))):
                    member = tarfile.TarInfo(f"sample{8 * number + index:04d}.{extension}")
                    member.size = len(data)
                    tar.addfile(member, io.BytesIO(data))


@contextmanager
def bucket(dataset: Path) -> Iterator[dict[str, str]]:
    """A server with s3://bucket/train.fl, of which the pages speak; yields the environment that leads
    there."""
    with SeaweedFS() as server:
        server.make_bucket("bucket")
        push(dataset, "s3://bucket/train.fl", storage_options=server.options(), progress=False)
        yield {
            "AWS_ENDPOINT_URL": server.endpoint,
            "AWS_ACCESS_KEY_ID": server.key,
            "AWS_SECRET_ACCESS_KEY": server.secret,
            "AWS_REGION": "us-east-1",
        }


HEAVY = ("torchvision", "lightning", "accelerate", "timm")


@pytest.mark.long
@pytest.mark.parametrize("heavy", [False, True], ids=["plain", "with-frameworks"])
def test_blocks_run(heavy: bool, tmp_path: Path) -> None:
    """Commands and programs of each page succeed, without a warning, one after another. Pages that import
    frameworks share a process."""
    pages = [
        page for page in RUN if any(name in block.text for block in blocks(page) for name in HEAVY) == heavy
    ]
    assert len(pages) >= 5
    given = tmp_path / "given"
    (given / "photos").mkdir(parents=True)
    write_folder(given / "photos" / "train", 36)
    write_folder(given / "photos" / "val", 12)
    write_tars(given)
    write_layouts(given)
    pack(given / "photos" / "train", given / "train.fl")
    pack(given / "photos" / "train", given / "val.fl")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    script = Path(__file__).with_name("run_blocks.py")
    with bucket(given / "train.fl") as credentials:
        environment = {
            **os.environ,
            **credentials,
            "PATH": path,
            "XDG_CACHE_HOME": str(tmp_path / "user-cache"),
        }
        imports = warm.TRAINING if heavy else ()
        done = warm.run(script, tmp_path, *pages, environment=environment, imports=imports, timeout=280)
    found = {line["page"]: line["error"] for line in map(json.loads, done.stdout.splitlines())}
    wrong = [
        f"{name_of(page)}: {error}"
        for page in pages
        if (error := found.get(str(page), f"not reached: {done.stderr}"))
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("page", MIGRATIONS, ids=name_of)
def test_migrations_are_diffs(page: Path) -> None:
    """Each diff takes something away and adds something; the programs before and after it parse, and share
    the lines that stay."""
    diffs = [block.text for block in blocks(page) if block.language == "diff"]
    assert diffs
    for diff in diffs:
        before, after = side(diff, "-"), side(diff, "+")
        assert before != after
        for program in (before, after):
            ast.parse(program)
        stays = [line[1:] for line in diff.splitlines() if line.startswith(" ")]
        assert stays
        assert [line for line in before.splitlines() if line and line in stays] == [
            line for line in stays if line
        ]
        assert [line for line in after.splitlines() if line and line in stays] == [
            line for line in stays if line
        ]
        assert "fastload" not in before
        assert "fastload" in after


@pytest.mark.parametrize("number", [0, 1, 2])
def test_the_program_before_gives_the_same(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both sides of the diffs of three pages run; batches are equal, or, where images are resampled, within
    1 of 255."""
    pytest.importorskip("torchvision")
    write_folder(tmp_path / "photos" / "train", 20)
    pack(tmp_path / "photos" / "train", tmp_path / "train.fl")
    monkeypatch.chdir(tmp_path)
    pages = [ROOT / "docs" / "guide" / name for name in ("own_code.md", "in-place.md", "packing.md")]
    diff = [block.text for page in pages for block in blocks(page) if block.language == "diff"][number]
    before, after = ({"__name__": "__main__"}, {"__name__": "__main__"})
    exec(side(diff, "-"), before)
    exec(side(diff, "+"), after)
    theirs, ours = before["batches"], after["batches"]
    assert isinstance(theirs, list)
    assert isinstance(ours, list)
    assert len(theirs) == len(ours) >= 2
    for (a, la), (b, lb) in zip(theirs, ours, strict=True):
        assert torch.equal(la, lb)
        assert a.shape == b.shape
        assert (a - b).abs().max() <= (0 if number == 0 else 1.001 / 255)
    loader: Any = after["loader"]
    loader.close()


def test_the_source_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worked example is a source of 30 lines. By its entry in the list its file is packed by path, to
    what its folder is packed to."""
    write_folder(tmp_path / "photos" / "train", 6)
    monkeypatch.chdir(tmp_path)
    texts = [
        block.text
        for block in blocks(ROOT / "docs" / "reference" / "sources.md")
        if block.language == "python"
    ]
    names: dict[str, Any] = {"__name__": "page"}
    for text in texts:
        exec(text, names)
    lines = texts[0][texts[0].index("class ZipSource") :].splitlines()
    assert len([line for line in lines if line.strip() and not line.strip().startswith("#")]) <= 30
    monkeypatch.setattr(sources, "CHOICES", (*sources.CHOICES[:3], names["FILE"], *sources.CHOICES[3:]))
    assert pack("photos.zip", "by-path.fl").samples == 6
    assert pack("photos.zip", "by-path.fl", resume=True).packed_now == 0
    pack("photos/train", "of-folder.fl")
    first, second = (
        sorted(path.read_bytes() for path in Path(out).glob("shard-*"))
        for out in ("by-path.fl", "of-folder.fl")
    )
    assert first == second


# ---- links, paths, names -----------------------------------------------------------------------------------


def _anchors(page: Path) -> set[str]:
    """Anchors of a page's headings."""
    headings = re.findall(
        r"^#+ (.+)$",
        re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL),
        re.MULTILINE,
    )
    return {
        re.sub(r"[^\w\- ]", "", heading.replace("`", "")).strip().lower().replace(" ", "-")
        for heading in headings
    }


@pytest.mark.parametrize("page", DOCUMENTS, ids=name_of)
def test_links_resolve(page: Path) -> None:
    """Every relative link leads to a file, every anchor to a heading of it."""
    prose = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", prose):
        if re.match(r"(https?|mailto):", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), target
        assert not anchor or anchor in _anchors(file), target


_PATH = re.compile(r"`((?:fastload|csrc|tests|benchmarks|examples|tools|docs|\.github|\.ci)/[\w./*-]*)`")


@pytest.mark.parametrize("page", DOCUMENTS, ids=name_of)
def test_paths_exist(page: Path) -> None:
    """Every path of the project that a page names is there."""
    for path in _PATH.findall(page.read_text()):
        assert list(ROOT.glob(path.rstrip("/"))), path


@pytest.mark.parametrize(
    "workflow", sorted((ROOT / ".github" / "workflows").glob("*.yml")), ids=lambda path: path.name
)
def test_workflows_name_what_is_there(workflow: Path) -> None:
    """Each make target, script, test folder and called workflow of a GitHub workflow exists. What GitHub
    makes of them is not tested."""
    text, makefile = workflow.read_text(), (ROOT / "Makefile").read_text()
    makefile += "".join(
        (ROOT / included).read_text() for included in re.findall(r"^include (\S+)", makefile, re.MULTILINE)
    )
    for targets in re.findall(r"run: make ([a-z -]+)(?![\w=])", text):
        for target in re.findall(r"(?<![\w-])[a-z][a-z-]*", targets):
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
    for path in re.findall(r"(?<![\w-])((?:\.github|tools|tests|csrc|fastload)/[\w./]+)", text):
        assert (ROOT / path.rstrip("/")).exists(), path


def test_every_page_is_in_the_navigation() -> None:
    """mkdocs.yml names each page once, and no page that is not there."""
    named = re.findall(r": ([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    assert sorted(named) == sorted(page.relative_to(ROOT / "docs").as_posix() for page in PAGES)


GUIDE = [page for page in PAGES if page.parent.name == "guide" or page.name == "index.md"]


@pytest.mark.parametrize("page", GUIDE, ids=name_of)
def test_a_page_of_the_guide_is_short(page: Path) -> None:
    """A page of the guide has at most 600 words beside its code; rules and long tables belong to
    docs/reference."""
    prose = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    words = [word for word in re.sub(r"\]\([^)]*\)", "]", prose).split() if re.search(r"\w", word)]
    assert len(words) <= 600


def test_public_names_are_documented() -> None:
    """Every public name has a docstring and a place in the reference."""
    assert list(docs_hooks.undocumented()) == []
    assert list(docs_hooks.missing_from_reference()) == []


def test_every_exception_is_public() -> None:
    """fastload.errors.__all__ names each exception of that module, and so the reference does."""
    found = vars(errors).values()
    mine = [each for each in found if inspect.isclass(each) and issubclass(each, errors.FastloadError)]
    assert sorted(each.__name__ for each in mine) == sorted(errors.__all__)


@pytest.mark.parametrize(
    "name",
    ["fastload.packing.packer.pack", "fastload.packing.attach.attach", "fastload.versions.append.append"],
)
def test_the_reference_shows_the_options(name: str) -> None:
    """The page of `pack` names and describes each keyword, as help() does; the others name those that they
    take."""
    griffe = pytest.importorskip("griffe")
    module, _, function = name.rpartition(".")
    extensions = griffe.load_extensions(str(ROOT / "tools" / "docs_signatures.py"))
    shown = griffe.load(module, search_paths=[str(ROOT)], extensions=extensions, try_relative_path=False)[
        function
    ]
    (described,) = (
        part.value
        for part in shown.docstring.parse("google", warnings=False)
        if part.kind.value == "parameters"
    )
    parameters = inspect.signature(getattr(fastload, function)).parameters
    if function == "pack":
        assert (
            [each.name for each in shown.parameters] == [each.name for each in described] == list(parameters)
        )
    else:
        told = re.findall(r"`(\w+)`", described[-1].description)
        if "all but" in described[-1].description:
            told = [name for name in inspect.signature(fastload.pack).parameters if name not in told]
            told = told[2:]  # source and out, which are arguments of their own
        assert [*(each.name for each in described[:-1]), *told] == list(parameters)


def test_contributing_names_every_suite() -> None:
    """CONTRIBUTING's table names each room, each folder of tests, and each file of tests beside them, and
    every suite in it exists."""
    rows = [line for line in (ROOT / "CONTRIBUTING.md").read_text().splitlines() if line.startswith("| ")]
    named = {suite for line in rows for suite in re.findall(r"`(tests/[\w./]+)`", line.split("|")[2])}
    holding = {
        path.parent for pattern in ("test_*.py", "test_*.c") for path in (ROOT / "tests").rglob(pattern)
    } - {ROOT / "tests"}
    there = {f"tests/{folder.relative_to(ROOT / 'tests').parts[0]}" for folder in holding}
    there |= {f"tests/{path.name}" for path in (ROOT / "tests").glob("test_*.py")}
    assert there <= named
    rooms = {f"fastload/{init.parent.name}" for init in (ROOT / "fastload").glob("*/__init__.py")}
    assert rooms <= {room for line in rows for room in re.findall(r"`(fastload/\w+)`", line.split("|")[1])}
    assert [suite for suite in named if not (ROOT / suite).exists()] == []


def test_the_reference_has_every_command() -> None:
    """The page of the command line has a section for each command that exists, which is made from it, and
    no other."""
    from fastload.cli.main import COMMANDS

    page = (ROOT / "docs" / "reference" / "cli.md").read_text()
    assert sorted(re.findall(r"^## fastload (\w+)$", page, re.MULTILINE)) == sorted(COMMANDS)
    assert re.findall(r"^## fastload (\w+)\n\n<!-- generated: cli \1 -->$", page, re.MULTILINE) == re.findall(
        r"cli (\w+) -->", page
    )
    assert len(re.findall(r"cli (\w+) -->", page)) == len(COMMANDS)


def test_generated_parts_are_made() -> None:
    """Tables of the command line and of results hold what the code and the files hold."""
    cli = docs_hooks.expand((ROOT / "docs" / "reference" / "cli.md").read_text())
    assert {"`--json FILE`", "`add|drop`", "`DATASET`"} <= set(re.findall(r"`[^`\n]+`", cli))
    assert "\\|" not in cli
    benchmarks = docs_hooks.expand((ROOT / "docs" / "benchmarks.md").read_text())
    decoders = json.loads((ROOT / "benchmarks" / "results" / "imread.json").read_text())["rows"]
    assert all(f"\n| {row['decoder']} | {row['memory']:.3g} | " in benchmarks for row in decoders)
    architecture = docs_hooks.expand((ROOT / "docs" / "architecture.md").read_text())
    results = architecture.partition("## Targets")[2].partition("## Words")[0]
    for file in (ROOT / "benchmarks" / "results").glob("*.json"):
        targets = json.loads(file.read_text()).get("targets") or []
        missed = {target["name"] for target in targets if not target["met"]}
        rows = re.findall(rf"^\| {file.stem} \| (.*?) \| (.*) \|$", results, re.MULTILINE)
        if missed:
            ((counts, cell),) = rows
            assert counts == f"{len(targets) - len(missed)} of {len(targets)}"
            assert set(_names_of_missed(cell.replace("\\|", "|"))) == missed
        else:
            assert rows == []
            assert results.count(f"`{file.stem}` ({len(targets)})" if targets else f"`{file.stem}`") == 1


def _names_of_missed(cell: str) -> Iterator[str]:
    """Names of the targets in a cell of the table of results: one an entry, or several cases of a measure."""
    for entry in cell.split("<br>"):
        if one := re.fullmatch(r"(.*): \S+ \((?:[≤≥] [\d.]+|no bound)\)", entry):
            yield one[1]
        else:
            measure, cases = re.split(r" \((?:[≤≥] [\d.]+|no bound)\): ", entry)
            yield from (f"{case.rpartition(' ')[0]}: {measure}" for case in cases.split("; "))


# ---- NOTEs -------------------------------------------------------------------------------------------------


def test_the_index_of_notes() -> None:
    """docs/architecture.md lists every NOTE of the code, and nothing else;
    `python tools/architecture_lists.py` writes the list."""
    page = (ROOT / "docs" / "architecture.md").read_text()
    assert architecture_lists.with_lists(page) == page, "run python tools/architecture_lists.py"
    assert len(architecture_lists.notes()) > 20


def test_notes_that_are_cited_exist() -> None:
    """What cites a NOTE means one that there is; no two have one name."""
    assert architecture_lists.dangling() == []
