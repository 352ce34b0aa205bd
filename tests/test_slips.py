"""What users write by mistake, and what they may expect to work: the answer names the mistake, at once and
in one sentence."""

from __future__ import annotations

import itertools
import os
import re
import resource
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import warm
from stable_ids import named

import fastload
from fastload import FastLoader, PackedDataset
from fastload import transforms as T
from fastload.augment import AugmentBatch, ColorJitter, MixUp
from fastload.bench.harness import count_packed
from fastload.cli.main import main
from fastload.errors import ArgumentError, DatasetError, PackError, ResourceError, TransformError
from fastload.packing import export, index, open_source, pack, unpack, verify
from fastload.store import MANIFEST_NAME, DatasetReader, Manifest


def command(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """Runs the command line here; its exit code."""
    monkeypatch.setattr(sys, "argv", ["fastload", *arguments])
    try:
        main()
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0


def containers() -> list[Any]:
    """Transforms that hold a class somewhere, and the class's name."""
    made: list[Any] = [
        T.CenterCrop,
        [T.CenterCrop],
        [T.Resize(8), (T.CenterCrop,)],
        [lambda image: image, T.CenterCrop],
    ]
    try:
        from torchvision.transforms import v2
    except (ImportError, RuntimeError):  # not there, or made for another torch
        return made
    import torchvision.transforms as v1

    for tv in (v1, v2):
        made += [tv.CenterCrop, tv.Compose([tv.CenterCrop]), [tv.Compose([tv.Resize(8), tv.CenterCrop])]]
        made += [tv.RandomApply([tv.CenterCrop]), tv.Compose([tv.RandomApply([tv.Resize(8), tv.CenterCrop])])]
    return made


@pytest.mark.parametrize("transform", containers(), ids=named)
def test_a_transforms_class(packed: Path, transform: Any) -> None:
    """`T.CenterCrop` without parentheses is told as such, alone, in lists, in Compose and in other
    containers."""
    with pytest.raises(TransformError, match=r"CenterCrop is the class.*CenterCrop\(\.\.\.\)"):
        PackedDataset(packed, transform=transform)


def test_any_class_as_a_transform(packed: Path) -> None:
    """Also a class of the user's own, and when it is assigned later."""

    class Mine:
        def __call__(self, image: torch.Tensor) -> torch.Tensor:
            return image

    dataset = PackedDataset(packed, transform=[Mine()])
    with pytest.raises(TransformError, match="Mine is the class"):
        dataset.transform = [T.Resize(8), Mine]


def test_a_class_as_a_batch_transform(packed: Path) -> None:
    """In batch_transform= and in AugmentBatch."""
    with pytest.raises(TransformError, match="ColorJitter is the class"):
        AugmentBatch([ColorJitter])
    with (
        pytest.raises(ArgumentError, match="batch_transform: MixUp is the class"),
        FastLoader(packed, transform=T.CenterCrop(8), batch_transform=[MixUp]) as loader,
    ):
        next(iter(loader))


def test_one_text_for_fields(packed: Path) -> None:
    """fields="label" is not six fields of one letter."""
    with pytest.raises(
        ArgumentError, match=r"fields='label' is one text, not a sequence of names: write fields=\('label',\)"
    ):
        PackedDataset(packed, fields="label")
    assert list(PackedDataset(packed, fields=("label",)).fields) == ["label"]


@pytest.mark.parametrize("value", ["abc", "1e9", "-1", "0", "²", "9" * 5000, str(2**40 + 1)])
def test_a_wrong_limit_on_pixels(
    packed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    """The variable is read where it is used, and named where it is wrong; an argument takes its place."""
    monkeypatch.setenv("FASTLOAD_MAX_PIXELS", value)
    for use in (
        lambda: PackedDataset(packed),
        lambda: verify(packed),
        lambda: pack(packed, tmp_path / "out"),
    ):
        with pytest.raises(ArgumentError, match="FASTLOAD_MAX_PIXELS="):
            use()
    assert PackedDataset(packed, max_pixels=10**6).max_pixels == 10**6


def test_a_limit_on_pixels(packed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable as it is when the dataset is made; what is no number of pixels is refused."""
    monkeypatch.setenv("FASTLOAD_MAX_PIXELS", "12345")
    assert PackedDataset(packed).max_pixels == 12345
    monkeypatch.delenv("FASTLOAD_MAX_PIXELS")
    assert PackedDataset(packed).max_pixels == 2**28
    for value in (0, -1, True, 1.5, "9", 2**70):
        with pytest.raises(ArgumentError, match="max_pixels="):
            PackedDataset(packed, max_pixels=value)  # type: ignore[arg-type]


def test_the_package_imports_with_any_environment() -> None:
    """A wrong variable is no error of the import."""
    code = (
        "import os; os.environ['FASTLOAD_MAX_PIXELS'] = 'abc'; import fastload.dataset.packed, "
        "fastload.packing"
    )
    done = warm.run(code)
    assert done.returncode == 0, done.stderr


def test_two_folders_or_tables(image_folder: Path, tmp_path: Path) -> None:
    """Several sources are tars; of folders and tables it is said what they are, and what to do."""
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_text("path,label\nx.jpg,1\n")
    with pytest.raises(
        PackError, match=r"is a folder: of several sources, all are \.tar files.*links to them"
    ):
        open_source([image_folder, image_folder])
    with pytest.raises(PackError, match=r"is a table: of several sources.*into one table"):
        open_source([str(tmp_path / "a.csv"), str(tmp_path / "b.csv")])
    assert len(open_source([image_folder])) == len(open_source(image_folder))


def test_verify_counts_what_it_could_not_check(
    image_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a truncated only shard nothing is known of any sample: that is said, instead of a count of 0 bad
    ones."""
    pack(image_folder, tmp_path / "ds")
    shard = tmp_path / "ds" / Manifest.load(tmp_path / "ds").shards[0].file
    shard.write_bytes(shard.read_bytes()[:-4096])
    report = verify(tmp_path / "ds")
    assert (report.ok, report.samples, report.unchecked, report.bad) == (False, 50, 50, ())
    assert command(monkeypatch, "verify", str(tmp_path / "ds"), "-q") == 1
    assert "none of its 50 samples could be checked" in capsys.readouterr().out


def test_a_lost_manifest(image_folder: Path, tmp_path: Path) -> None:
    """The advice is that which works: --overwrite; --resume is advised of an unfinished pack, and of that
    alone."""
    out = tmp_path / "ds"
    pack(image_folder, out, limit=5)
    (out / MANIFEST_NAME).unlink()
    with pytest.raises(
        DatasetError, match=r"its manifest\.json is lost: .*pack again: `fastload pack SRC .* --overwrite`"
    ) as lost:
        PackedDataset(out)
    assert "--resume" not in str(lost.value)
    for resume in (False, True):
        with pytest.raises(PackError, match=r"its manifest\.json is lost.*--overwrite"):
            pack(image_folder, out, limit=5, resume=resume)
    pack(image_folder, out, limit=5, overwrite=True)
    assert len(PackedDataset(out)) == 5


def test_an_unfinished_pack(image_folder: Path, tmp_path: Path) -> None:
    """Its advice is --resume, which works."""
    source = Path(shutil.copytree(image_folder, tmp_path / "src"))
    bad = sorted(source.rglob("*.jpg"))[-1]
    whole = bad.read_bytes()
    bad.write_bytes(b"")
    with pytest.raises(PackError):
        pack(source, tmp_path / "ds")
    with pytest.raises(DatasetError, match="--resume` finishes it"):
        PackedDataset(tmp_path / "ds")
    bad.write_bytes(whole)
    pack(source, tmp_path / "ds", resume=True)
    assert len(PackedDataset(tmp_path / "ds")) == 50


def test_the_home_folder(
    image_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`~` is the home folder in every argument that is a path, in Python and where a shell did not see it."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    shutil.copytree(image_folder, tmp_path / "src")
    pack("~/src", "~/ds", limit=10)
    assert (
        len(PackedDataset("~/ds"))
        == len(DatasetReader("~/ds"))
        == Manifest.load("~/ds").count
        == count_packed(Path("~/ds"))
        == 10
    )
    assert PackedDataset(Path("~/ds")).path == tmp_path / "ds"
    with FastLoader("~/ds", batch_size=2, transform=T.CenterCrop(8)) as loader:
        assert len(loader) == 5
    assert verify("~/ds").ok
    index("~/ds")
    unpack("~/ds", "~/files")
    for arguments in (
        ["info", "~/ds"],
        ["verify", "~/ds"],
        ["index", "~/ds"],
        ["unpack", "~/ds", "~/files2"],
        ["pack", "~/src", "~/ds2"],
    ):
        assert command(monkeypatch, *arguments) == 0, capsys.readouterr().err
    (tmp_path / "src" / "list.csv").write_text(
        "path,label\n" + "".join(f"{path},0\n" for path in sorted(image_folder.rglob("*.jpg"))[:2])
    )
    assert len(open_source("~/src/list.csv")) == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ds", "ds2", "files", "files2", "src"]


def test_the_packages_names() -> None:
    """dir() has what can be used, before its first use as well."""
    code = "import fastload, sys; sys.exit(not {'pack', 'index', *fastload.__all__} <= set(dir(fastload)))"
    done = warm.run(code)
    assert done.returncode == 0, done.stderr
    assert set(fastload.__all__) <= set(dir(fastload))
    assert callable(fastload.pack)
    assert "fastload.pack(" in (Path(__file__).resolve().parent.parent / "README.md").read_text(
        encoding="utf-8"
    )


@pytest.mark.parametrize(
    ("dataset", "told"),
    [
        (42, "42 is no Dataset, for it has no samples"),
        (iter(()), "is no Dataset"),
        (
            PackedDataset,
            r"PackedDataset is the class of a dataset: give an object of it, PackedDataset\(...\)",
        ),
    ],
)
def test_no_dataset(dataset: Any, told: str) -> None:
    """What has no samples is refused where the loader is made, with torch's error and what to do."""
    with pytest.raises(TypeError, match=r"has no len\(\)|not subscriptable") as caught:
        FastLoader(dataset)
    assert re.search(
        told, str(caught.value.__cause__ if sys.version_info < (3, 11) else caught.value.__notes__)
    )


def test_a_dtype_as_text(packed: Path) -> None:
    """The error has the dtypes as they are written."""
    with pytest.raises(ArgumentError, match=r"dtype='float32': give torch\.uint8, torch\.float32"):
        FastLoader(packed, dtype="float32")  # type: ignore[call-overload]


def test_a_url_with_a_slash_too_few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The URL that is meant is named, also where the path was made absolute."""
    monkeypatch.chdir(tmp_path)
    for path in ("s3:/bucket/x", "gs:/bucket/x"):
        with pytest.raises(DatasetError, match=f"if a URL is meant, write {path.replace(':/', '://')}$"):
            FastLoader(path)


def test_a_protocol_that_nobody_knows() -> None:
    """It is told from one whose module is missing."""
    pytest.importorskip("fsspec")
    with pytest.raises(DatasetError, match="fsspec knows no such protocol; check the URL's beginning"):
        FastLoader("foo://x/y")


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        ("train.py", "write `fastload run train.py` to run it"),
        ("train.fl", "a command stands before a path, as in `fastload info train.fl`"),
        ("s3://bucket/train", "as in `fastload info s3://bucket/train`"),
        ("pak", "did you mean pack"),
    ],
)
def test_a_path_in_place_of_a_command(
    typed: str, told: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is told where the command goes."""
    assert command(monkeypatch, typed) == 2
    assert told in capsys.readouterr().err


@pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")
def test_too_many_workers(packed: Path) -> None:
    """Threads beyond the limit, and processes that cannot be started, are told as num_workers, with what
    to do."""
    with pytest.raises(ArgumentError, match="num_workers=5000: native threads are 4096 at most"):
        FastLoader(packed, num_workers=5000)
    loader: Any = FastLoader(range(8), num_workers=3)
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = set(map(int, os.listdir("/proc/self/fd")))
    free = (number for number in itertools.count() if number not in taken)
    # Six are left.
    resource.setrlimit(resource.RLIMIT_NOFILE, (next(itertools.islice(free, 6, None)), limit[1]))
    try:
        with pytest.raises(
            ResourceError,
            match=r"num_workers=3: after \d worker processes .*: use fewer, or raise .*ulimit -n",
        ):
            iter(loader)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limit)


def test_a_limit_on_the_size_of_files(packed: Path, image_folder: Path, tmp_path: Path) -> None:
    """It is named where it stops a pack, an unpack, an export, or a worker's batch."""
    samples: Any = [torch.zeros(10_000)] * 2
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, limit[1]))
    try:
        for write in (
            lambda: unpack(packed, tmp_path / "files"),
            lambda: export(packed, tmp_path / "data.tar"),
        ):
            with pytest.raises(
                PackError, match=r"files have a limit of 2,000 bytes here: raise RLIMIT_FSIZE \(ulimit -f\)"
            ):
                write()
        with pytest.raises(PackError, match="RLIMIT_FSIZE"):
            pack(image_folder, tmp_path / "out", progress=False, workers=1)
        with pytest.raises(ResourceError, match="files have a limit of 2000 bytes here: raise RLIMIT_FSIZE"):
            list(FastLoader(samples, num_workers=1))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
