"""Writes the datasets of this folder with the real libraries, and compares what fastload reads of larger ones
with the libraries' readers.

    python make.py            compare only, with 200 samples of each kind in a temporary folder
    python make.py --write    also write the small ones anew into this folder

Needs tfrecord, mosaicml-streaming, litdata, webdataset, lmdb, pillow, and fastload with its dependencies: see
README.md.
"""

from __future__ import annotations

import argparse
import io
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[2]))
try:
    import torchvision_ops  # noqa: F401  where torchvision is beside a CPU build of torch
except ImportError:
    pass

Sample = dict[str, Any]


def jpeg(number: int) -> bytes:
    """A JPEG file of its own for each number."""
    rng = np.random.default_rng(number)
    coarse = Image.fromarray(rng.integers(0, 256, (3, 4, 3), dtype=np.uint8))
    out = io.BytesIO()
    coarse.resize((40 + number % 7, 32), Image.Resampling.BICUBIC).save(
        out, "JPEG", quality=60, subsampling=number % 3
    )
    return out.getvalue()


def sample(number: int) -> Sample:
    """The values of one sample, before a library has them."""
    return {
        "jpeg": jpeg(number),
        "label": number % 5,
        "text": f"sample {number} ä",
        "score": number / 4,
        "box": np.arange(4, dtype=np.float32) + number,
        "sizes": list(range(number % 3)),
        "bytes": bytes([255, number % 256]),
        "meta": {"n": number, "tags": ["a", {"b": None}]},
        "flag": number % 2 == 0,
    }


def write_tfrecord(root: Path, count: int) -> list[Path]:
    from tfrecord.writer import TFRecordWriter

    root.mkdir(parents=True)
    paths = [root / f"train-{shard:05d}-of-00002" for shard in range(2)]
    for shard, path in enumerate(paths):
        writer = TFRecordWriter(str(path))
        for number in range(shard, count, 2):
            s = sample(number)
            writer.write(
                {
                    "image/encoded": (s["jpeg"], "byte"),
                    "image/class/label": (s["label"], "int"),
                    "image/class/text": (s["text"].encode(), "byte"),
                    "score": (s["score"], "float"),
                    "box": (list(map(float, s["box"])), "float"),
                    "sizes": (s["sizes"], "int"),
                    "raw": (s["bytes"], "byte"),
                    "minus": (-number, "int"),
                }
            )
        writer.close()
    return paths


def read_tfrecord(root: Path) -> Iterator[Sample]:
    from tfrecord import example_pb2
    from tfrecord.reader import tfrecord_iterator

    for path in sorted(root.iterdir()):
        for record in tfrecord_iterator(str(path)):
            example = example_pb2.Example()
            example.ParseFromString(bytes(record))
            f = example.features.feature
            yield {
                "image": f["image/encoded"].bytes_list.value[0],
                "label": f["image/class/label"].int64_list.value[0],
                "image/class/text": f["image/class/text"].bytes_list.value[0].decode(),
                "score": f["score"].float_list.value[0],
                "box": np.array(f["box"].float_list.value, np.float32),
                "sizes": list(f["sizes"].int64_list.value),
                "raw": f["raw"].bytes_list.value[0],
                "minus": f["minus"].int64_list.value[0],
            }


MDS_COLUMNS = {
    "img": "jpeg",
    "target": "int",
    "text": "str",
    "score": "float32",
    "small": "uint8",
    "box": "ndarray:float32:4",
    "grid": "ndarray",
    "row": "ndarray:int16",
    "raw": "bytes",
    "meta": "json",
    "long": "str_int",
}


def write_mds(root: Path, count: int) -> None:
    from streaming import MDSWriter

    with MDSWriter(out=str(root), columns=MDS_COLUMNS, size_limit=max(6000, 1000 * count // 3)) as writer:
        for number in range(count):
            s = sample(number)
            writer.write(
                {
                    "img": Image.open(io.BytesIO(s["jpeg"])),
                    "target": s["label"],
                    "text": s["text"],
                    "score": np.float32(s["score"]),
                    "small": np.uint8(number % 256),
                    "box": s["box"],
                    "grid": np.full((2, 3), number, np.int64),
                    "row": np.full(5, number, np.int16),
                    "raw": s["bytes"],
                    "meta": s["meta"],
                    "long": 10**12 + number,
                }
            )


def read_mds(root: Path) -> Iterator[Sample]:
    from streaming import StreamingDataset

    for s in StreamingDataset(local=str(root), shuffle=False, batch_size=1):
        values = dict(s)
        yield {"image": np.asarray(values.pop("img").convert("RGB")), "label": values.pop("target"), **values}


def write_mds_pixels(root: Path, count: int) -> None:
    from streaming import MDSWriter

    with MDSWriter(out=str(root), columns={"image": "pil", "label": "int64"}) as writer:
        for number in range(count):
            pixels = Image.open(io.BytesIO(jpeg(number)))
            pixels.load()
            writer.write({"image": pixels.convert("L" if number % 2 else "RGB"), "label": number})


def read_mds_pixels(root: Path) -> Iterator[Sample]:
    from streaming import StreamingDataset

    for s in StreamingDataset(local=str(root), shuffle=False, batch_size=1):
        yield {"image": np.asarray(s["image"].convert("RGB")), "label": s["label"]}


def litdata_sample(number: int) -> Sample:
    import torch

    s = sample(number)
    return {
        "image": Image.open(io.BytesIO(s["jpeg"])),
        "label": s["label"],
        "text": s["text"],
        "score": s["score"],
        "flag": s["flag"],
        "box": s["box"],
        "grid": np.full((2, 3), number, np.int64),
        "tensor": torch.full((3, 2), number, dtype=torch.int16),
        "line": torch.arange(6, dtype=torch.float16) + number,
        "raw": s["bytes"],
        "more": {"n": number, "t": "x"},
    }


def litdata_pair(number: int) -> tuple[bytes, int]:
    return jpeg(number), number % 5


def write_litdata(root: Path, count: int, make: Callable[[int], Any] = litdata_sample) -> None:
    from litdata.streaming.cache import Cache

    cache = Cache(str(root), chunk_size=max(2, count // 3))
    for number in range(count):
        cache[number] = make(number)
    cache.done()
    cache.merge()


def read_litdata(root: Path) -> Iterator[Sample]:
    import torch
    from litdata import StreamingDataset
    from litdata.streaming import serializers

    # the library decodes by torchvision's compiled operators, which do not load beside a CPU build of torch
    def decode(data: Any) -> torch.Tensor:
        return torch.from_numpy(np.array(Image.open(io.BytesIO(bytes(data))).convert("RGB"))).permute(2, 0, 1)

    serializers._decode_image_tensor = decode
    for s in StreamingDataset(str(root), shuffle=False):
        values = dict(s)
        more = values.pop("more")
        values |= {f"more.{key}": value for key, value in more.items()}
        yield {
            "image": values.pop("image").permute(1, 2, 0).numpy(),
            **{k: plain(v) for k, v in values.items()},
        }


def plain(value: Any) -> Any:
    """A tensor as an array, a view as bytes."""
    if isinstance(value, memoryview):
        return bytes(value)
    return value.numpy() if hasattr(value, "numpy") else value


def read_litdata_pairs(root: Path) -> Iterator[Sample]:
    from litdata import StreamingDataset

    for image, label in StreamingDataset(str(root), shuffle=False):
        yield {"image": bytes(image), "label": label}


def write_webdataset(root: Path, count: int) -> None:
    import webdataset

    root.mkdir(parents=True)
    with webdataset.ShardWriter(str(root / "train-%03d.tar"), maxcount=max(2, count // 3)) as writer:
        for number in range(count):
            s = sample(number)
            writer.write(
                {
                    "__key__": f"{number:06d}",
                    "jpg": s["jpeg"],
                    "cls": s["label"],
                    "txt": s["text"],
                    "json": s["meta"],
                    "npy": s["box"],
                }
            )


def read_webdataset(root: Path) -> Iterator[Sample]:
    import webdataset

    paths = sorted(map(str, root.glob("*.tar")))
    for s in webdataset.WebDataset(paths, shardshuffle=False).decode(
        "rgb8", handler=webdataset.reraise_exception
    ):
        yield {"image": s["jpg"], "label": s["cls"], "txt": s["txt"], "json": s["json"], "npy": s["npy"]}


def write_lmdb(root: Path, count: int) -> None:
    import lmdb

    root.mkdir(parents=True)
    with lmdb.open(str(root), map_size=1 << 26) as env, env.begin(write=True) as transaction:
        for number in range(1, count + 1):
            transaction.put(b"image-%09d" % number, jpeg(number) + (bytes(9000) if number % 4 == 0 else b""))
            transaction.put(b"label-%09d" % number, f"word {number}".encode())
        transaction.put(b"num-samples", str(count).encode())
    (root / "lock.mdb").unlink()


def read_lmdb(root: Path) -> Iterator[Sample]:
    import lmdb

    with lmdb.open(str(root), readonly=True, lock=False) as env, env.begin() as transaction:
        for number in range(1, int(transaction.get(b"num-samples")) + 1):
            yield {
                "image": transaction.get(b"image-%09d" % number),
                "label": transaction.get(b"label-%09d" % number).decode(),
            }


KINDS: dict[str, tuple[Callable[[Path, int], Any], Callable[[Path], Iterator[Sample]], dict[str, str]]] = {
    "tfrecord": (write_tfrecord, read_tfrecord, {}),
    "mds": (write_mds, read_mds, {}),
    "mds-pixels": (write_mds_pixels, read_mds_pixels, {}),
    "litdata": (write_litdata, read_litdata, {}),
    "litdata-pairs": (lambda root, count: write_litdata(root, count, litdata_pair), read_litdata_pairs, {}),
    "webdataset": (write_webdataset, read_webdataset, {}),
    "lmdb": (write_lmdb, read_lmdb, {"key_pattern": "image-%09d", "label_pattern": "label-%09d"}),
}
"""Of each kind: its writer, the library's own reader, and the options that fastload needs."""


def rgb(image: Any) -> np.ndarray[Any, Any]:
    """Pixels of a file's bytes, or pixels as they are."""
    pixels = (
        np.asarray(Image.open(io.BytesIO(image)).convert("RGB"))
        if isinstance(image, bytes)
        else np.asarray(image)
    )
    return np.repeat(pixels[:, :, None], 3, axis=2) if pixels.ndim == 2 else pixels


def equal(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return np.asarray(a).dtype == np.asarray(b).dtype and np.array_equal(a, b)
    return bool(a == b)


def compare(root: Path, theirs: Iterator[Sample], options: dict[str, str]) -> int:
    """Compares every value of every sample, and the bytes at every place, before and after a pack."""
    from fastload import PackedDataset, pack
    from fastload.sources import Placed, open_source
    from fastload.sources.options import LmdbOptions, SourceOptions

    source = open_source(root, SourceOptions(lmdb=LmdbOptions(**options) if options else None))
    summary = pack(root, root.parent / f"{root.name}.fl", encode="keep", **options)
    packed = PackedDataset(root.parent / f"{root.name}.fl")
    assert summary.samples == len(packed) == len(source)
    count = 0
    for position, expected in enumerate(theirs):
        item = source.read(position)
        assert np.array_equal(rgb(item.image), rgb(expected.pop("image"))), source.name(position)
        assert item.values.keys() == expected.keys(), (item.values.keys(), expected.keys())
        for name, value in expected.items():
            assert equal(item.values[name], value), (source.name(position), name, item.values[name], value)
        assert isinstance(source, Placed)
        place = source.place(position)
        if place is not None:
            with open(place.path, "rb") as file:
                file.seek(place.offset)
                assert file.read(place.size) == item.image
        row = packed[position]
        image, label = (row["image"], row["label"]) if isinstance(row, dict) else row[:2]
        assert np.array_equal(np.asarray(image).transpose(1, 2, 0), rgb(item.image)), source.name(position)
        assert label == expected["label"]
        count += 1
    assert count == len(source), (count, len(source))
    return count


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", action="store_true", help="write this folder's datasets anew")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("kinds", nargs="*", help="all by default")
    arguments = parser.parse_args()
    for name in arguments.kinds or KINDS:
        write, read, options = KINDS[name]
        if arguments.write and name != "webdataset":
            shutil.rmtree(HERE / name, ignore_errors=True)
            write(HERE / name, 7)
            expected = [{k: describe(v) for k, v in sample.items()} for sample in read(HERE / name)]
            (HERE / f"{name}.json").write_text(json.dumps(expected, indent=1) + "\n")
        with tempfile.TemporaryDirectory() as temporary:
            root = Path(temporary, name)
            write(root, arguments.count)
            print(f"{name}: {compare(root, read(root), options)} samples compared")  # noqa: T201


def describe(value: Any) -> Any:
    """A value as JSON: pixels and arrays by dtype, shape and a checksum, bytes by theirs."""
    from hashlib import sha256

    if isinstance(value, bytes):
        return {"sha256": sha256(value).hexdigest()}
    if isinstance(value, np.ndarray):
        return {
            "dtype": value.dtype.name,
            "shape": list(value.shape),
            "sha256": sha256(np.ascontiguousarray(value).tobytes()).hexdigest(),
        }
    return value.item() if isinstance(value, np.generic) else value


if __name__ == "__main__":
    for package in ("tfrecord", "mosaicml-streaming", "litdata", "webdataset", "lmdb", "numpy", "pillow"):
        print(package, version(package))  # noqa: T201
    main()
