"""Every argument on every engine: each cell of the table in docs/arguments.md is shown to be true."""

from __future__ import annotations

import inspect
import io
import re
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import fields
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch
from pictures import photo
from PIL import Image
from PIL.JpegImagePlugin import JpegImageFile
from torch.utils.data import Dataset, IterableDataset

from fastload import FastLoader, PackedDataset
from fastload import transforms as T
from fastload.engines.settings import SHOWN, Arguments, Settings
from fastload.errors import LoaderTimeout
from fastload.store.schema import Field, Schema
from fastload.store.writer import DatasetWriter

DOCUMENT = Path(__file__).parents[2] / "docs" / "arguments.md"
COUNT = 7
BAD = 5
"""The sample that cannot be made, where a test asks for one."""
JPEG, LARGE = (
    (lambda out, side: (photo(1, side, side).save(out, "JPEG", quality=95), out.getvalue())[1])(
        io.BytesIO(), n
    )
    for n in (20, 300)
)
LEFT = [index for index in range(COUNT) if index != BAD]


def _table() -> dict[tuple[str, str], str]:
    """The document's cells by (argument, engine). A row holds for each argument that it names; no argument
    has two rows."""
    lines = [line for line in DOCUMENT.read_text().splitlines() if line.startswith("|")]
    start = next(number for number, line in enumerate(lines) if line.startswith("| arguments |"))
    engines = [cell.strip() for cell in lines[start].strip("|").split("|")][1:]
    cells: dict[tuple[str, str], str] = {}
    for line in lines[start + 2 :]:
        if not line.startswith("| `"):
            break
        names, *marks = (cell.strip() for cell in line.strip("|").split("|"))
        for name in re.findall(r"`(\w+)`", names):
            assert (name, engines[0]) not in cells, name
            cells |= {(name, engine): mark for engine, mark in zip(engines, marks, strict=True)}
    return cells


TABLE = _table()


class Noted:
    """What happens in the process that makes samples: a mark that worker_init_fn sets, a pause before the
    first sample."""

    mark = 0
    pause = 0.0


def begin(worker: int) -> None:
    Noted.mark = 100


def image_of(index: int) -> torch.Tensor:
    return torch.full((3, 8, 8), index + Noted.mark, dtype=torch.uint8)


class Images(Dataset[Any]):
    def __init__(self, bad: bool) -> None:
        self.bad = bad

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> Any:
        time.sleep(Noted.pause)
        if self.bad and index == BAD:
            raise OSError("a broken file")
        return image_of(index), index


class Stream(IterableDataset[Any]):
    """It has a state of its own: how many samples it has made."""

    def __init__(self) -> None:
        self.made = 0

    def state_dict(self) -> dict[str, int]:
        return {"made": self.made}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.made = state["made"]

    def __iter__(self) -> Any:
        for index in range(COUNT):
            time.sleep(Noted.pause)
            self.made += 1
            yield image_of(index), index


class Step:
    """A step of Python: it notes what Noted asks for, and changes no pixel otherwise."""

    def __call__(self, image: torch.Tensor) -> torch.Tensor:
        time.sleep(Noted.pause)
        return image + Noted.mark if Noted.mark else image


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, Path]:
    """Seven packed images, without and with a bad one."""
    out = {}
    for bad in (False, True):
        out[bad] = tmp_path_factory.mktemp("table") / "images.fl"
        writer = DatasetWriter(
            out[bad], Schema((Field("image", "image"), Field("label", "int"))), shard_size=1 << 30, options={}
        )
        for label in range(COUNT):
            jpeg = io.BytesIO()
            photo(label, 40, 48).save(jpeg, "JPEG", quality=90)
            data = b"no JPEG" if bad and label == BAD else jpeg.getvalue()
            writer.append({"image": data, "label": label}, image_kind="jpeg", height=40, width=48, state={})
        writer.finish(None, {})
    return out


class Engine:
    """Makes loaders that run on one engine."""

    def __init__(self, name: str, packed: dict[bool, Path]) -> None:
        self.kind, self.workers = name.partition(",")[0], 0 if name.endswith(", 0") else 1
        self._packed = packed

    def loader(self, *, bad: bool = False, **arguments: Any) -> FastLoader[Any]:
        """A loader over images 0 to 6; `bad`: with one that cannot be made."""
        if self.kind in ("threads", "packed"):
            steps = [T.CenterCrop(32), *([] if self.kind == "threads" else [Step()])]
            dataset: Any = PackedDataset(self._packed[bad], transform=steps)
        else:
            dataset = Images(bad) if self.kind == "map" else Stream()
        given = {"batch_size": 4, "num_workers": self.workers, **arguments}
        if "batch_sampler" in given:
            del given["batch_size"]
        return FastLoader(dataset, **given)

    def batches(self, **arguments: Any) -> list[Any]:
        """Batches of one epoch."""
        with self.loader(**arguments) as loader:
            return list(loader)

    def labels(self, **arguments: Any) -> list[list[int]]:
        """Labels of one epoch, by batch."""
        return [labels.tolist() for _, labels in self.batches(**arguments)]


def flat(batches: list[list[int]]) -> list[int]:
    return [label for batch in batches for label in batch]


def doubled(images: torch.Tensor) -> torch.Tensor:
    return images.float() * 2


class Keyed:
    """A step on batches that notes its seed."""

    def __init__(self) -> None:
        self.seeds: set[int] = set()

    def __call__(self, images: Any, *, seed: int, epoch: int, batch: int) -> Any:
        self.seeds.add(seed)
        return images


# ---- what each argument does where it acts
# Of in_order, device_prefetch and seed_by only that they are taken and lose nothing: what they change is a
# matter of time, or of draws, and has tests of its own (test_batches, test_device_prefetch,
# test_worker_seeding).


def batch_size(on: Engine) -> bool:
    return on.labels(batch_size=3) == [[0, 1, 2], [3, 4, 5], [6]]


def shuffle(on: Engine) -> bool:
    order = flat(on.labels(shuffle=True, seed=1))
    return sorted(order) == list(range(COUNT)) != order


def sampler(on: Engine) -> bool:
    return on.labels(sampler=[4, 2]) == [[4, 2]]


def batch_sampler(on: Engine) -> bool:
    return on.labels(batch_sampler=[[4, 2], [1]]) == [[4, 2], [1]]


def shard(on: Engine) -> bool:
    return [on.labels(shard=(rank, 2)) for rank in range(2)] == [[[0, 2, 4, 6]], [[1, 3, 5, 0]]]


def even(on: Engine) -> bool:
    return [on.labels(shard=(rank, 2), even=False) for rank in range(2)] == [[[0, 2, 4, 6]], [[1, 3, 5]]]


def collate_fn(on: Engine) -> bool:
    return on.batches(collate_fn=lambda samples: [label for _, label in samples]) == [[0, 1, 2, 3], [4, 5, 6]]


def collate(on: Engine) -> bool:
    images, labels = on.batches(collate="list")[0]
    return len(images) == len(labels) == 4 and all(image.ndim == 3 for image in images)


def pad_to(on: Engine) -> bool:
    images = on.batches(collate="padded", pad_to=20)[1][0]
    return all(side % 20 == 0 for side in images.values.shape[2:]) and images.lengths.shape == (3, 2)


def pin_memory(on: Engine) -> bool:
    return _pins(on, pin_memory=True)


def pin_memory_device(on: Engine) -> bool:
    return _pins(on, pin_memory=True, pin_memory_device="cuda", told="pin_memory_device")


def _pins(on: Engine, told: str = "no accelerator", **arguments: Any) -> bool:
    """Without an accelerator, that is a warning."""
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        images = on.batches(**arguments)[0][0]
    return any(told in str(each.message) for each in given) or images.is_pinned()


def drop_last(on: Engine) -> bool:
    return on.labels(drop_last=True) == [[0, 1, 2, 3]]


def timeout(on: Engine) -> bool:
    Noted.pause = 5.0  # of the workers, which end as soon as they are late
    slow = {"batch_size": 4000, "sampler": [0] * 4000} if on.kind == "threads" else {}
    try:
        with on.loader(timeout=0.02, **slow) as loader:
            next(iter(loader))
    except LoaderTimeout:
        return True
    return False


def worker_init_fn(on: Engine) -> bool:
    plain, marked = (on.batches(sampler=None, **given)[0][0] for given in ({}, {"worker_init_fn": begin}))
    return bool((marked.int() - plain.int()).remainder(256).eq(100).all())


def multiprocessing_context(on: Engine) -> bool:
    with on.loader(multiprocessing_context="spawn") as loader:
        return (
            loader.multiprocessing_context is not None
            and loader.multiprocessing_context.get_start_method() == "spawn"
        )


def generator(on: Engine) -> bool:
    mine, others = torch.Generator(), torch.get_rng_state()
    before = mine.get_state()
    on.batches(generator=mine)
    return not torch.equal(mine.get_state(), before) and torch.equal(torch.get_rng_state(), others)


def prefetch_factor(on: Engine) -> bool:
    with on.loader(prefetch_factor=5) as loader:
        return bool(loader.stats()["depth"] == 5)


def persistent_workers(on: Engine) -> bool:
    with on.loader(persistent_workers=True) as loader:
        list(loader)
        first = loader._iterator
        list(loader)
        return first is not None and loader._iterator is first


def in_order(on: Engine) -> bool:
    return sorted(flat(on.labels(in_order=False))) == list(range(COUNT))


def device(on: Engine) -> bool:
    return all(part.device.type == "meta" for batch in on.batches(device="meta") for part in batch)


def device_prefetch(on: Engine) -> bool:
    return flat(on.labels(device="cpu", device_prefetch=3)) == list(range(COUNT))


def batch_transform(on: Engine) -> bool:
    plain, changed = on.batches(), on.batches(batch_transform=doubled)
    return all(torch.equal(a[0].float() * 2, b[0]) for a, b in zip(plain, changed, strict=True))


def memory_format(on: Engine) -> bool:
    return all(
        images.is_contiguous(memory_format=torch.channels_last)
        for images, _ in on.batches(memory_format=torch.channels_last)
    )


def dtype(on: Engine) -> bool:
    plain, changed = on.batches(), on.batches(dtype=torch.float16)
    return all(torch.equal((a[0] / 255).half(), b[0]) for a, b in zip(plain, changed, strict=True))


def seed(on: Engine) -> bool:
    keyed = Keyed()
    on.batches(seed=5, batch_transform=keyed)
    return keyed.seeds == {5}


def seed_by(on: Engine) -> bool:
    return sorted(flat(on.labels(seed_by="sample"))) == list(range(COUNT))


def on_error(on: Engine) -> bool:
    replaced = flat(on.labels(bad=True, on_error="replace", seed=1))
    return (
        flat(on.labels(bad=True, on_error="skip")) == LEFT and len(replaced) == COUNT and BAD not in replaced
    )


def snapshot_every_n_steps(on: Engine) -> bool:
    states = []
    for steps in (1, 2):
        with on.loader(batch_size=1, snapshot_every_n_steps=steps) as loader:
            iterator = iter(loader)
            for _ in range(3):
                next(iterator)
            states.append(loader.state_dict()["replicas"])
    return bool(states[0] != states[1])


def opened(samples: Any) -> bool:
    """True if an image that Pillow opens here is a lazy one."""
    return type(Image.open(io.BytesIO(JPEG))) is not JpegImageFile


def lazy(on: Engine) -> bool:
    plain, asked = (on.batches(collate_fn=opened, lazy=given)[0] for given in (False, "exact"))
    return (plain, asked) == (False, True)


def cropped(samples: Any) -> Any:
    """Looks at a part of an image that is large enough for an entropy index."""
    return Image.open(io.BytesIO(LARGE)).crop((0, 0, 9, 9)).getpixel((0, 0))


def cache(on: Engine) -> bool:
    """Of lazy images; of files in place: tests/dataset/in_place/test_kept_in_place.py."""
    with TemporaryDirectory() as folder:
        on.batches(collate_fn=cropped, lazy="exact", cache=folder)
        return len(list(Path(folder).rglob("facts.index"))) == 1


def cache_size(on: Engine) -> bool:
    """With no room nothing is kept."""
    with TemporaryDirectory() as folder:
        on.batches(collate_fn=cropped, lazy="exact", cache=folder, cache_size=0)
        return cache(on) and not list(Path(folder).rglob("facts.index"))


def cache_side(on: Engine) -> bool:
    """On files in place, where none of these engines is: tests/dataset/in_place/test_cache_side.py."""
    raise AssertionError(on)


REFUSED: dict[str, dict[str, Any]] = {
    "shuffle": {"shuffle": True},
    "sampler": {"sampler": [1]},
    "batch_sampler": {"batch_sampler": [[1]]},
    "timeout": {"timeout": 3},
    "multiprocessing_context": {"multiprocessing_context": "spawn"},
    "prefetch_factor": {"prefetch_factor": 3},
    "persistent_workers": {"persistent_workers": True},
    "memory_format": {"memory_format": torch.channels_last},
    "dtype": {"dtype": torch.float16},
    "seed_by": {"seed_by": "sample"},
    "on_error": {"on_error": "skip"},
    "shard": {"shard": "auto"},
    "even": {"shard": "auto", "even": False},
    "cache_side": {"cache": "a folder that nobody makes", "cache_side": 64},
}
IDLE: dict[str, dict[str, Any]] = {
    "worker_init_fn": {"worker_init_fn": begin},
    "multiprocessing_context": {"multiprocessing_context": "spawn"},
    "persistent_workers": {"persistent_workers": True},
    "in_order": {"in_order": False},
    "device_prefetch": {"device_prefetch": 1},
    "seed_by": {"seed_by": "sample"},
    "snapshot_every_n_steps": {"snapshot_every_n_steps": 2},
    "cache": {"cache": "a folder that nobody makes"},
    "cache_size": {"cache": "a folder that nobody makes", "cache_size": 1},
    "lazy": {"lazy": "fast"},
}


def test_the_table_is_complete() -> None:
    """Every argument but those that choose the engine has a row, a way to show it, and known marks."""
    arguments = inspect.signature(FastLoader.__init__).parameters.keys() - {
        "self",
        "dataset",
        "num_workers",
        "transform",
        "engine",
    }
    assert {argument for argument, _ in TABLE} == arguments
    assert set(TABLE.values()) == {"acts", "refused", "warns", "idle"}
    assert len(TABLE) == 8 * len(arguments)


def test_the_arguments_are_declared_once() -> None:
    """Signature, fields of Settings and attributes are those that Arguments declares; an attribute's
    annotation is that of Settings."""
    declared = inspect.signature(Arguments).parameters
    assert inspect.signature(FastLoader).parameters == declared
    assert (
        declared.keys()
        == {each.name for each in fields(Arguments)}
        <= {each.name for each in fields(Settings)}
    )
    types = Arguments.__annotations__ | Settings.__annotations__ | {"transform": "None"}
    assert {name: FastLoader.__annotations__[name] for name in SHOWN} == {name: types[name] for name in SHOWN}


def test_a_new_argument_is_one_line(tmp_path: Path) -> None:
    """With one more line in Arguments, FastLoader takes the argument, Settings has it, and the loader
    shows it."""
    found = find_spec("fastload.engines.settings")
    assert found is not None
    assert found.origin is not None
    source = Path(found.origin).read_text()
    last = "    pad_to: int | None = None\n"
    assert source.count(last) == 1
    (tmp_path / "settings.py").write_text(source.replace(last, f"{last}    further: int = 7\n"))
    subprocess.run([sys.executable, "-c", ONE_MORE, tmp_path / "settings.py"], check=True, timeout=120)


ONE_MORE = """
import importlib.util, inspect, sys
spec = importlib.util.spec_from_file_location("fastload.engines.settings", sys.argv[1])
sys.modules[spec.name] = module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
from fastload import FastLoader
assert inspect.signature(FastLoader).parameters["further"].default == 7
loader = FastLoader([1, 2], further=3)
assert loader.further == loader._fastload.settings.further == 3
assert FastLoader([1, 2]).further == 7
"""


@pytest.mark.parametrize(
    ("argument", "engine"), list(TABLE), ids=[f"{a}-{e.replace(', ', '')}" for a, e in TABLE]
)
def test_each_cell(
    argument: str, engine: str, packed: dict[bool, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """acts: it does what it says. refused: an error with a reason when the loader is made. warns, idle: an
    epoch is as it is without."""
    monkeypatch.setattr(Noted, "pause", 0.0)
    on, mark = Engine(engine, packed), TABLE[argument, engine]
    show: Callable[[Engine], bool] = globals()[argument]
    if mark == "acts":
        assert show(on)
    elif mark == "refused":
        with pytest.raises(
            ValueError, match=re.compile(rf"{argument}|{argument.partition('_')[0]}|index", re.I)
        ):
            on.loader(**REFUSED[argument])
    else:
        with warnings.catch_warnings(record=True) as given:
            warnings.simplefilter("always")
            got = on.labels(**IDLE[argument])
        assert got == on.labels()
        assert [argument in str(each.message) for each in given] == ([True] if mark == "warns" else [])
