"""The command line as a user meets it: exit codes, one-line errors, JSON, and a quick start without torch."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import warm
from PIL import Image

from fastload.cli import main as main_module
from fastload.store import Manifest


def run(
    *arguments: str | Path, cwd: Path | None = None, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return warm.fastload(*arguments, folder=cwd or ".", environment={**os.environ, **(env or {})})


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Twelve photos in two classes, one with a trailing comment to strip."""
    root = tmp_path / "src"
    for i in range(12):
        pixels = np.random.default_rng(i).integers(0, 256, (30, 40, 3), dtype=np.uint8)
        out = io.BytesIO()
        Image.fromarray(pixels).save(out, "JPEG", comment=b"x" if i == 0 else b"")
        path = root / ("cat", "dog")[i % 2] / f"{i:02d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(out.getvalue())
    return root


def one_line(result: subprocess.CompletedProcess[str]) -> str:
    """The error of a failed command: exit code 2, nothing on stdout, one line on stderr."""
    assert result.returncode == 2, result.stderr
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    assert len(lines) == 1, result.stderr
    return lines[0]


def test_pack_info_verify_unpack(source: Path, tmp_path: Path) -> None:
    """The round: a summary, the manifest as a table and as JSON, a clean verify, files again."""
    packed = run("pack", source, tmp_path / "ds", "--shuffle", "--seed", "3")
    assert packed.returncode == 0, packed.stderr
    assert "samples" in packed.stdout
    assert "12" in packed.stdout
    document = json.loads(run("info", tmp_path / "ds", "--json").stdout)
    assert (document["samples"], document["classes"]) == (12, ["cat", "dog"])
    assert document["options"]["seed"] == 3
    assert document["summary"]["formats"] == {"jpeg": 12}
    assert [field["name"] for field in document["fields"]] == ["image", "label"]
    table = run("info", tmp_path / "ds")
    assert "classes in label    2: cat (6), dog (6)" in table.stdout
    verified = run("verify", tmp_path / "ds", "--decode")
    assert (verified.returncode, "12 samples" in verified.stdout) == (0, True)
    unpacked = run("unpack", tmp_path / "ds", tmp_path / "files")
    assert unpacked.returncode == 0
    assert len(list((tmp_path / "files").glob("*/*.jpg"))) == 12
    assert "12 files" in unpacked.stdout
    refused = run("unpack", tmp_path / "ds", tmp_path / "coco", "--layout", "coco")
    assert (refused.returncode, len(refused.stderr.splitlines())) == (2, 1)
    assert "images without objects" in refused.stderr


def test_verify_lists_bad_samples_and_exits_1(source: Path, tmp_path: Path) -> None:
    """Exit code 1 is for a dataset that does not hold, with each bad sample on a line of its own."""
    run("pack", source, tmp_path / "ds", "-q")
    shard = tmp_path / "ds" / Manifest.load(tmp_path / "ds").shards[0].file
    data = bytearray(shard.read_bytes())
    scan = data.rindex(b"\xff\xda", 0, len(data))
    data[scan + 100] ^= 1
    shard.write_bytes(data)
    result = run("verify", tmp_path / "ds", "-q")
    assert result.returncode == 1
    assert "(shard-00000.lmdb): " in result.stdout
    assert "1 of 12 samples bad, 1 file bad" in result.stdout


def test_index_of_a_packed_dataset(source: Path, tmp_path: Path) -> None:
    """What --no-index left out is added later, and told; a second run finds nothing to do; errors are one
    line."""
    assert run("pack", source, tmp_path / "with", "-q").returncode == 0
    assert run("pack", source, tmp_path / "ds", "-q", "--no-index").returncode == 0
    indexed = Manifest.load(tmp_path / "with").summary["indexed"]
    assert indexed > 0
    result = run("index", tmp_path / "ds", "--workers", "2")
    assert result.returncode == 0, result.stderr
    assert (
        f"{indexed} of 12 JPEGs have an entropy index, {indexed} of them new; 1 shard written anew"
        in result.stdout
    )
    again = run("index", tmp_path / "ds", "-q")
    assert (
        f"{indexed} of 12 JPEGs have an entropy index, 0 of them new; 0 shards written anew" in again.stdout
    )
    assert Manifest.load(tmp_path / "ds").summary == Manifest.load(tmp_path / "with").summary
    assert run("verify", tmp_path / "ds", "-q").returncode == 0
    assert "there is no" in one_line(run("index", tmp_path / "nowhere"))
    assert "no packed dataset" in one_line(run("index", source))


def test_errors_are_one_line_and_exit_code_2(source: Path, tmp_path: Path) -> None:
    """What is wrong, where, and what to do; no traceback."""
    assert "no such folder" in one_line(run("pack", tmp_path / "gone", tmp_path / "ds"))
    (source / "empty").mkdir()
    assert "no image in the class folder empty" in one_line(run("pack", source, tmp_path / "ds"))
    (source / "empty").rmdir()
    (source / "cat" / "bad.jpg").write_bytes(b"\xff\xd8\xff\xe0")
    line = one_line(run("pack", source, tmp_path / "ds", "-q"))
    assert str(source / "cat" / "bad.jpg") in line
    assert "--on-error skip" in line
    assert "--resume" in one_line(run("info", tmp_path / "ds"))
    assert "--resume" in one_line(run("pack", source, tmp_path / "ds", "-q"))
    assert run("pack", source, tmp_path / "ds", "-q", "--overwrite", "--on-error", "skip").returncode == 0
    assert "--overwrite" in one_line(run("pack", source, tmp_path / "ds", "-q"))
    assert "there is no" in one_line(run("verify", tmp_path / "nowhere"))
    assert "1KiB" in one_line(run("pack", source, tmp_path / "x", "--shard-size", "1KiB"))
    assert "FASTLOAD_MAX_PIXELS" in one_line(
        run("pack", source, tmp_path / "x", env={"FASTLOAD_MAX_PIXELS": "many"})
    )


def test_wrong_usage_is_exit_code_2(tmp_path: Path) -> None:
    """As any command line tool."""
    assert run("pack", tmp_path).returncode == 2
    assert run("pack", tmp_path, tmp_path / "o", "--encode", "best").returncode == 2
    assert run("nonsense").returncode == 2


def test_skipped_and_doubtful_samples_are_named(source: Path, tmp_path: Path) -> None:
    """The summary ends with the names that someone should look at."""
    data = (source / "dog" / "01.jpg").read_bytes()
    (source / "dog" / "01.jpg").write_bytes(data[: len(data) // 3])
    (source / "dog" / "03.jpg").write_bytes(data[:-40] + b"\xff\x00" * 15 + b"\xff\xd9")
    result = run("pack", source, tmp_path / "ds", "--on-error", "skip", "--check", "entropy")
    assert result.returncode == 0
    assert f"left out: {source / 'dog' / '01.jpg'}" in result.stdout
    assert f"decodes only with warnings: {source / 'dog' / '03.jpg'}" in result.stdout


def test_what_was_left_out_is_told(source: Path, tmp_path: Path) -> None:
    """The summary has a note for each kind, with its count, an example, and the option; info has the
    counts."""
    block = Image.Exif()
    block[0x0112] = 6
    Image.new("RGB", (16, 16)).save(source / "cat" / "turned.jpg", exif=block.tobytes())
    (source / "cat" / "moving.gif").touch()
    result = run("pack", source, tmp_path / "ds")
    notes = [text for text in result.stdout.splitlines() if text.startswith("note: 1 ")]
    (left_out,) = (text for text in notes if ".gif" in text)
    assert left_out.endswith(f"{source}/cat/moving.gif")
    assert ".csv" in left_out
    assert any("EXIF" in text and "--exif apply" in text for text in notes)
    assert ".gif files left out" in run("info", tmp_path / "ds", "--all", env={"COLUMNS": "200"}).stdout


def test_a_table_and_many_sources(source: Path, tmp_path: Path) -> None:
    """A .csv works from the command line; several sources must be tars."""
    with open(tmp_path / "list.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["path", "label"])
        writer.writerows([f"src/cat/{i:02d}.jpg", f"name{i % 3}"] for i in range(0, 12, 2))
    assert run("pack", "list.csv", "ds", "-q", cwd=tmp_path).returncode == 0
    assert Manifest.load(tmp_path / "ds").classes == ("name0", "name1", "name2")
    assert "of several sources, all are .tar files" in one_line(run("pack", source, source, tmp_path / "x"))


def test_columns_of_a_table(source: Path, tmp_path: Path) -> None:
    """A header that is not known is asked for in one line; the options that this line names answer it."""
    (tmp_path / "list.csv").write_text("picture,kind\nsrc/cat/00.jpg,cat\nsrc/dog/01.jpg,dog\n")
    line = one_line(run("pack", "list.csv", "ds", "--on-error", "skip", cwd=tmp_path))
    assert "line 1: 'picture,kind'; line 2: 'src/cat/00.jpg,cat'" in line
    done = run(
        "pack", "list.csv", "ds", "-q", "--path-column", "picture", "--label-column", "kind", cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert Manifest.load(tmp_path / "ds").classes == ("cat", "dog")
    assert "--no-header" in run("pack", "--help", env={"COLUMNS": "200"}).stdout


def test_start_up_does_not_import_torch() -> None:
    """--help answers before torch would have loaded."""
    code = (
        "import sys; sys.argv = ['fastload', '--help']\n"
        "from fastload.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "heavy = sorted({'torch', 'kornia', 'PIL', 'turbojpeg', 'matplotlib'} & set(sys.modules))\n"
        "sys.exit(' '.join(heavy) or None)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    for name in ("pack", "info", "verify", "index", "unpack", "bench"):
        assert name in result.stdout


def test_pack_and_verify_do_not_import_torch(source: Path, tmp_path: Path) -> None:
    """Packing on a machine without torch works."""
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from fastload.packing import pack, verify\n"
        f"pack({str(source)!r}, {str(tmp_path / 'ds')!r}); assert verify({str(tmp_path / 'ds')!r}, "
        "decode=True).ok"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_version() -> None:
    """The version of the package, by the module as Python starts it."""
    from fastload import __version__

    command = [sys.executable, "-m", "fastload", "--version"]
    assert (
        subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
        == f"fastload {__version__}"
    )


def test_output_to_a_closed_pipe(source: Path, tmp_path: Path) -> None:
    """`fastload info | head` ends without a traceback."""
    run("pack", source, tmp_path / "ds", "-q")
    command = [sys.executable, "-m", "fastload", "info", str(tmp_path / "ds"), "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert b"Traceback" not in process.stderr.read()


@pytest.mark.parametrize(
    ("given", "known"),
    [
        (["pack", "a", "b", "--ray"], ["pack", "a", "b", "--ray="]),
        (["pack", "a", "b", "--ray", "--quiet"], ["pack", "a", "b", "--ray=", "--quiet"]),
        (["pack", "a", "b", "--ray", "host:1", "-q"], ["pack", "a", "b", "--ray", "host:1", "-q"]),
        (["pack", "a", "b", "--ray=host:1"], ["pack", "a", "b", "--ray=host:1"]),
        ([], []),
    ],
)
def test_ray_takes_an_address_or_none(given: list[str], known: list[str]) -> None:
    """--ray may stand without a value."""
    assert main_module._with_values(given) == known
