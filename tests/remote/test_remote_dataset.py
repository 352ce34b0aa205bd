"""A bucket is only a slower disk: a dataset at a URL gives the samples and batches of the local one, bit
for bit, on every engine."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import reading
import torch
from reading import CROP, URL, batches, fetched, same, size_of
from servers.seaweedfs import SeaweedFS
from torch.utils.data import ConcatDataset, Subset

import fastload
from fastload import FastLoader, PackedDataset, push
from fastload import transforms as T
from fastload.batch.containers import tensors_of
from fastload.errors import ArgumentError, DatasetError

TINY = "s3://fastload/remote-dataset/tiny.fl"


@pytest.fixture(scope="module")
def tiny(seaweedfs: SeaweedFS, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A local dataset of raw images, which is also at TINY."""
    out = reading.write_tiny(tmp_path_factory.mktemp("tiny") / "tiny.fl")
    push(out, TINY, storage_options=seaweedfs.options())
    return out


@pytest.fixture(scope="module")
def full(photos: Path, tmp_path_factory: pytest.TempPathFactory, seaweedfs: SeaweedFS) -> Path:
    """A cache folder that has all of URL."""
    cache = tmp_path_factory.mktemp("full")
    from fastload.remote.caches import fill_cache

    assert fill_cache(URL, cache, None, seaweedfs.options()) == (reading.COUNT, reading.COUNT)
    return cache


class Remote:
    """Opens datasets at URLs, in cache folders of the test's own, and closes them at its end."""

    def __init__(self, server: SeaweedFS, folder: Path) -> None:
        self._server, self._folder = server, folder
        self._opened: list[PackedDataset] = []

    def __call__(self, url: str = URL, *arguments: Any, **more: Any) -> PackedDataset:
        given = {"cache": self._folder / "cache", "storage_options": self._server.options(), **more}
        self._opened.append(PackedDataset(url, *arguments, **given))
        return self._opened[-1]

    def close(self) -> None:
        for dataset in self._opened:
            dataset.close()


@pytest.fixture
def remote(seaweedfs: SeaweedFS, photos: Path, tmp_path: Path) -> Iterator[Remote]:
    found = Remote(seaweedfs, tmp_path)
    yield found
    found.close()


@pytest.fixture(params=["all", "half", "none"])
def size(request: pytest.FixtureRequest, photos: Path) -> int | None:
    """A cache size: of everything, of half of the dataset, of nothing."""
    return {"all": None, "half": size_of(photos) // 2, "none": 0}[request.param]


def finished(image: torch.Tensor) -> torch.Tensor:
    """A step that only Python can do, so that samples are made in processes."""
    return image.flip(-1).contiguous()


def test_samples_equal_local_ones(photos: Path, remote: Remote, size: int | None) -> None:
    """One by one and many at once, with every field, in two rounds; columns, tables and conditions too."""
    local, far = PackedDataset(photos), remote(cache_size=size)
    assert len(far) == len(local) == reading.COUNT
    order = np.random.default_rng(0).permutation(len(local)).tolist()
    for _ in range(2):
        assert all(same(far[i], local[i]) for i in order[:40])
        assert same(far.__getitems__(order), local.__getitems__(order))
    for name in ("label", "weight", "wide"):
        assert same(far.column(name), local.column(name))
    assert far.table().equals(local.table())
    picked = far.where("label % 2 = 0 and caption like '%1%'")
    assert picked.indices.tolist() == local.where("label % 2 = 0 and caption like '%1%'").indices.tolist()


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_batches_equal_local_ones(photos: Path, remote: Remote, size: int | None, workers: int) -> None:
    """On native threads, in two shuffled epochs, with every field; nothing is fetched twice that has room."""
    far = remote(URL, CROP, cache_size=size)
    expected = batches(PackedDataset(photos, CROP), 2, num_workers=workers)
    assert same(batches(far, 2, num_workers=workers), expected)
    records = sum(len(far.opened.reader.record(i)) for i in range(len(far))) if size is None else 0
    if size is None:
        assert fetched(far) <= 1.01 * size_of(photos)
        before = fetched(far)
        assert before >= records
        batches(far, 1, num_workers=workers)
        assert fetched(far) == before


def test_the_order_of_a_generator_of_ones_own(photos: Path, remote: Remote) -> None:
    """Every epoch comes in the order that the user's generator says, also where the cache has no room, and
    epochs cannot begin early."""
    both = [
        batches(dataset, 3, generator=torch.Generator().manual_seed(5))
        for dataset in (PackedDataset(photos, CROP), remote(URL, CROP, cache_size=0))
    ]
    assert same(*both)


@pytest.mark.parametrize("given", [{"collate": "list"}, {"collate": "padded", "pad_to": 16}])
def test_images_of_different_sizes_and_substitutes(
    photos: Path, remote: Remote, size: int | None, given: dict[str, Any]
) -> None:
    """Lists and padded batches equal local ones, also where a sample that the transform does not fit is
    replaced by one of another size."""
    side = int(np.quantile(np.minimum(*PackedDataset(photos).sizes), 0.3)) + 1
    steps = [T.RandomCrop(side), T.ScaleJitter((40, 60), (0.5, 1.5))]
    both = []
    for dataset in (PackedDataset(photos, steps), remote(URL, steps, cache_size=size)):
        with FastLoader(
            dataset, 8, seed=4, shuffle=True, num_workers=2, engine="native", on_error="replace", **given
        ) as loader:
            both.append(list(loader))
            assert loader.replaced > 0
    assert len(both[0]) == len(both[1])
    for local, other in zip(*both, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(tensors_of(local), tensors_of(other), strict=True))


@pytest.mark.parametrize("context", ["fork", "spawn", "forkserver"])
def test_worker_processes_give_local_batches(photos: Path, remote: Remote, context: str) -> None:
    """Samples that Python finishes, in two processes that share the cache, where half of the dataset has
    room; secrets go by the pickle."""
    steps = [*CROP, finished]
    expected = batches(PackedDataset(photos, steps), 1)
    far = remote(URL, steps, cache_size=size_of(photos) // 2)
    assert same(batches(far, 1, multiprocessing_context=context), expected)


def test_python_engine_in_the_calling_process(photos: Path, remote: Remote, size: int | None) -> None:
    steps = [*CROP, finished]
    far = remote(URL, steps, cache_size=size)
    assert same(batches(far, 2, num_workers=0), batches(PackedDataset(photos, steps), 2, num_workers=0))


def test_a_worker_goes_on_with_what_the_parent_has_read(photos: Path, remote: Remote) -> None:
    """The parent has fetched half when it forks, and reads on beside its workers."""
    far = remote(URL, CROP)
    expected = batches(PackedDataset(photos, CROP), 1, num_workers=0)
    loader = FastLoader(far, batch_size=16, shuffle=True, seed=1, num_workers=2)
    iterator = iter(loader)
    got = [reading.copied(next(iterator)) for _ in range(4)]
    worked = remote(URL, [*CROP, finished], cache=far.opened.reader.files.session.folder.path)  # type: ignore[attr-defined]
    beside = batches(worked, 1, multiprocessing_context="fork")
    got += [reading.copied(batch) for batch in iterator]
    assert same(got, expected)
    assert same(beside, batches(PackedDataset(photos, [*CROP, finished]), 1))
    loader.close()


def test_a_window_shuffles_alike(photos: Path, remote: Remote) -> None:
    arguments = {"shuffle": "window", "num_workers": 1}
    assert same(
        batches(remote(URL, CROP), 2, **arguments), batches(PackedDataset(photos, CROP), 2, **arguments)
    )


def test_subsets_and_concatenations(photos: Path, tiny: Path, remote: Remote) -> None:
    """Of a remote and a local dataset, of two remote ones, and of a part of one that is asked for twice in
    a batch."""
    fields = ("image", "label")
    crop: dict[str, Any] = {"transform": CROP, "fields": fields}
    local, local_tiny = PackedDataset(photos, **crop), PackedDataset(tiny, **crop)
    far, far_tiny = remote(URL, **crop), remote(TINY, **crop)
    part = [*range(0, 150, 7), 3, 3, 3]
    pairs = [
        (Subset(far, part), Subset(local, part)),
        (ConcatDataset([far, local_tiny]), ConcatDataset([local, local_tiny])),
        (ConcatDataset([far, far_tiny]), ConcatDataset([local, local_tiny])),
        (
            ConcatDataset([Subset(far_tiny, range(100)), far]),
            ConcatDataset([Subset(local_tiny, range(100)), local]),
        ),
    ]
    for ours, theirs in pairs:
        assert same(batches(ours, 1, batch_size=50), batches(theirs, 1, batch_size=50))


def test_tiny_records_come_in_groups(tiny: Path, remote: Remote) -> None:
    """Raw pixels of 3 KB: each group is fetched once, and gives every record of it."""
    far = remote(TINY)
    assert same(batches(far, 2, batch_size=64), batches(PackedDataset(tiny), 2, batch_size=64))
    assert fetched(far) <= 1.01 * size_of(tiny)
    small = remote(
        TINY,
        cache_size=size_of(tiny) // 3,
        cache=far.opened.reader.files.session.folder.path.parent / "third",
    )  # type: ignore[attr-defined]
    assert same(batches(small, 2, batch_size=64), batches(PackedDataset(tiny), 2, batch_size=64))


def test_changes_and_versions(
    photos: Path, seaweedfs: SeaweedFS, remote: Remote, s3_url: str, tmp_path: Path
) -> None:
    """Added columns and texts, dropped samples and columns, as the local dataset has them; a version that
    was not pushed is none."""
    local = tmp_path / "changed.fl"
    reading.write_photos(local, 60)
    rows = "".join(f"{i / 7},note {i}\n" for i in range(60))
    (tmp_path / "more.csv").write_text(f"score:float,note:text\n{rows}")
    fastload.add_columns(local, tmp_path / "more.csv")
    push(local, s3_url, storage_options=seaweedfs.options())
    fastload.drop(local, indices=list(range(0, 60, 4)))
    fastload.drop_columns(local, "weight")
    push(local, s3_url, storage_options=seaweedfs.options())
    for version in (4, None):
        ours = remote(s3_url, CROP, version=version, seed=3)
        theirs = PackedDataset(local, CROP, version=version, seed=3)
        assert (len(ours), ours.fields, ours.version) == (len(theirs), theirs.fields, theirs.version)
        assert same(ours.__getitems__(range(len(ours))), theirs.__getitems__(range(len(theirs))))
        assert same(batches(ours, 1), batches(theirs, 1))
    for version in (2, 9):
        with pytest.raises(DatasetError, match=f"no version {version}: it has 4"):
            remote(s3_url, version=version)


def test_resumed_in_mid_epoch(photos: Path, remote: Remote) -> None:
    """A state saved after four batches continues from a bucket as from a disk, in another process' cache
    too."""
    local = FastLoader(PackedDataset(photos, CROP), batch_size=16, shuffle=True, seed=1, num_workers=2)
    iterator = iter(local)
    for _ in range(4):
        next(iterator)
    state = local.state_dict()
    expected = [reading.copied(batch) for batch in iterator]
    far = FastLoader(remote(URL, CROP), batch_size=16, shuffle=True, seed=1, num_workers=2)
    far.load_state_dict(state)
    assert same([reading.copied(batch) for batch in far], expected)
    local.close()
    far.close()


def test_pickled_and_copied(photos: Path, remote: Remote) -> None:
    """A pickle opens the dataset anew, with its options; a copy shares what is open; closed, it opens
    again."""
    far, local = remote(URL, CROP, seed=3), PackedDataset(photos, CROP, seed=3)
    again = pickle.loads(pickle.dumps(far))
    assert same(again[5], local[5])
    assert same(copy.copy(far)[6], local[6])
    far.close()
    assert same(far[7], local[7])
    again.close()


def test_no_secret_is_shown_or_stored(
    photos: Path, seaweedfs: SeaweedFS, remote: Remote, tmp_path: Path
) -> None:
    """Neither in reprs, nor in messages and pickles of exceptions, nor in names and contents of the cache."""
    secret, signed = seaweedfs.secret, "X-Amz-Signature=c0ffee"
    far = remote(URL, CROP)
    batches(far, 1)
    shown = [
        repr(far),
        repr(far.opened.reader),
        repr(far.opened.reader.files),
        str(far.path),
        FastLoader(far, batch_size=2).explain(all=True),
    ]
    for url, options in [
        (f"{URL}-missing?{signed}", seaweedfs.options()),
        (URL, {**seaweedfs.options(), "secret_access_key": f"wrong-{secret}"}),
        (URL, {**seaweedfs.options(), "no_such_option": secret}),
    ]:
        with pytest.raises((DatasetError, ArgumentError)) as caught:
            remote(url, storage_options=options, timeout=2)
        shown += [str(caught.value), repr(caught.value), repr(pickle.dumps(caught.value))]
    assert not [text for text in shown if secret in text or "c0ffee" in text]
    assert not reading.secrets_in(tmp_path, secret, "c0ffee", seaweedfs.key)


def test_arguments_that_do_not_go_together(photos: Path, remote: Remote, tmp_path: Path) -> None:
    """One sentence each: options of a bucket for a folder, a cache that is a file, sizes and timeouts that
    are none."""
    with pytest.raises(ArgumentError, match="cache goes with a dataset in a bucket"):
        PackedDataset(photos, cache=tmp_path)
    (tmp_path / "file").write_text("")
    for named in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(ArgumentError, match="is no folder"):
            remote(cache=named)


@pytest.mark.parametrize(
    "wrong",
    [{"cache_size": "much"}, {"cache_size": -1}, {"timeout": 0}, {"storage_options": [1]}, {"base": "here"}],
)
def test_arguments_out_of_range(photos: Path, remote: Remote, wrong: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError):
        remote(**wrong)
