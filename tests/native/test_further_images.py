"""core: further images of a record, 8-bit RGB or planes, are parts of its row: one key and program, each
image of its own size."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

import fastload
from fastload._native import core
from fastload.errors import ArgumentError, SampleError
from fastload.packing import Item
from fastload.store import DatasetReader, Field

FIELDS = (
    Field("second", "image"),
    Field("depth", "image", "uint16", (1,)),
    Field("alpha", "image", "uint8", (4,)),
)
FORMS = {"image": None, "second": None, "depth": (1, 2), "alpha": (4, 1)}
MAX = 1 << 28


def jpeg(pixels: npt.NDArray[np.uint8]) -> bytes:
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "JPEG", quality=90)
    return out.getvalue()


class Images:
    """A source of samples with four images, each of a size of its own."""

    title, classes, concurrent, fields = "images", None, True, FIELDS

    def __len__(self) -> int:
        return 4

    def name(self, position: int) -> str:
        return f"image-{position}.jpg"

    def read(self, position: int) -> Item:
        rng = np.random.default_rng(position)
        values: dict[str, Any] = {
            "second": jpeg(rng.integers(0, 256, (50 + position, 70, 3), dtype=np.uint8)),
            "depth": rng.integers(0, 65536, (40, 41 + position), dtype=np.uint16),
            "alpha": rng.integers(0, 256, (33, 52, 4), dtype=np.uint8),
        }
        return Item(self.name(position), jpeg(rng.integers(0, 256, (64, 48, 3), dtype=np.uint8)), values)


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> DatasetReader:
    """A dataset of Images, opened."""
    out = tmp_path_factory.mktemp("images") / "d"
    fastload.pack(Images(), out, workers=1)
    return DatasetReader(Path(out))


def source_of(reader: DatasetReader, programs: list[core.Program]) -> core.Source:
    schema = reader.schema
    further = [(name, schema.number(name), programs) for name in list(FORMS)[1:]]
    return core.Source(reader.store, programs, schema.number("image"), MAX, further)


def stored_pixels(reader: DatasetReader, index: int, name: str) -> npt.NDArray[Any]:
    """The image as a whole, (height, width, channels)."""
    kind, data = reader.stored_fields(index)[reader.schema.number(name)]
    pixels = core.decode_planes(data) if kind == core.KIND_PLANES else core.jpeg_decode(data, None, 8, MAX)
    return pixels if pixels.ndim == 3 else pixels[..., None]


def decode(
    reader: DatasetReader, programs: list[core.Program], index: int, dtype: str = ""
) -> dict[str, list[npt.NDArray[Any]]]:
    """All parts of a sample by image, (height, width, channels)."""
    outputs, sizes = [], []
    for name, form in FORMS.items():
        own = "uint16" if form == (1, 2) else "uint8"
        pixels = stored_pixels(reader, index, name)
        channels, levels = pixels.shape[2], 256 << (8 if own == "uint16" else 0)
        lut = (
            np.tile(np.arange(levels, dtype=np.float32) / np.float32(levels - 1), (channels, 1))
            if dtype
            else None
        )
        for program in programs:
            outputs.append(core.Output(dtype or own, "HWC", lut, form))
            sizes.append(program.size(pixels.shape[1], pixels.shape[0], 5, 2, index))
    made = [np.empty((h, w, out.channels), out.dtype) for (w, h), out in zip(sizes, outputs, strict=True)]
    into = [each.reshape(-1).view(np.uint8) for each in made]
    core.Decoder().decode(source_of(reader, programs), index, 5, 2, outputs, into, sizes)
    each = iter(made)
    return {name: [next(each) for _ in programs] for name in FORMS}


def expected(pixels: npt.NDArray[Any], program: core.Program, index: int, name: str) -> npt.NDArray[Any]:
    """The same by the geometry that the program draws for an image of that size, on the whole image."""
    g = program.resolve(pixels.shape[1], pixels.shape[0], 5, 2, index)
    x, y, width, height = g["box"]
    crop = np.ascontiguousarray(pixels[y : y + height, x : x + width])
    resize = core.resize if FORMS[name] is None else core.resize_planes
    return resize(crop, None, g["size"], window=g["window"], hflip=g["hflip"], vflip=g["vflip"])


def crop(size: int, stream: int, **more: Any) -> core.Program:
    flips = [
        {"kind": "hflip", "p": 0.5, "stream": stream + 1},
        {"kind": "vflip", "p": 0.5, "stream": stream + 2},
    ]
    return core.Program(
        [
            {
                "kind": "resized_crop",
                "width": size,
                "height": size,
                "stream": stream,
                "scale": (0.2, 1.0),
                "ratio": (0.7, 1.4),
                "dct_scale": False,
                **more,
            },
            *flips,
        ]
    )


@pytest.mark.parametrize("views", [1, 2])
def test_each_image_goes_through_the_same_program(reader: DatasetReader, views: int) -> None:
    """Every part equals the geometry of its own image, resampled from all of its pixels."""
    programs = [crop(24, 1), crop(9, 10)][:views]
    for index in range(len(reader)):
        for name, parts in decode(reader, programs, index).items():
            pixels = stored_pixels(reader, index, name)
            for part, program in zip(parts, programs, strict=True):
                assert np.array_equal(part, expected(pixels, program, index, name)), (index, name)


def test_floats(reader: DatasetReader) -> None:
    """Tables of 256 and of 65,536 values make floats of all images."""
    for name, [part] in decode(reader, [crop(24, 1)], 1, "float32").items():
        whole = expected(stored_pixels(reader, 1, name), crop(24, 1), 1, name)
        assert np.array_equal(part, whole.astype(np.float32) / np.float32(np.iinfo(whole.dtype).max)), name


def test_padding(reader: DatasetReader) -> None:
    """Padding after a resize, before one, and in place of one shows the colour in all channels."""
    pad = {
        "kind": "random_crop",
        "width": 90,
        "height": 90,
        "pad_if_needed": True,
        "fill": (7, 7, 7),
        "stream": 1,
    }
    box = {"kind": "letterbox", "width": 30, "height": 60, "fill": (9, 9, 9), "stream": 2, "dct_scale": False}
    for ops, fill, size in (
        ([pad], 7, (90, 90)),
        ([box], 9, (30, 60)),
        ([pad, {**box, "fill": (7, 7, 7)}], 7, (30, 60)),
    ):
        program = core.Program(ops)
        for name, [part] in decode(reader, [program], 0).items():
            pixels = stored_pixels(reader, 0, name)
            assert part.shape[:2] == size[::-1]
            if ops == [pad]:
                g = program.resolve(pixels.shape[1], pixels.shape[0], 5, 2, 0)
                x, y = -g["window"][0], -g["window"][1]
                whole = np.full_like(part, fill)
                whole[y : y + pixels.shape[0], x : x + pixels.shape[1]] = pixels
                assert np.array_equal(part, whole), name
            else:
                assert (part[0] == fill).all() or (part[:, 0] == fill).all(), name
                assert (part != fill).any()


def test_what_does_not_fit(reader: DatasetReader) -> None:
    """Planes into RGB and RGB into planes, other depths, too many parts, numbers for other shards: each is
    told."""
    program, schema = core.Program([]), reader.schema
    for name, form in (
        ("depth", None),
        ("alpha", (4, 2)),
        ("second", (3, 1)),
        ("depth", (1, 1)),
        ("alpha", (3, 1)),
    ):
        own = core.Output("uint16" if form and form[1] == 2 else "uint8", "HWC", None, form)
        pixels = [stored_pixels(reader, 0, each) for each in ("image", name)]
        sizes = [(each.shape[1], each.shape[0]) for each in pixels]
        into = [np.empty(64 * 70 * 8, np.uint8) for _ in sizes]
        source = core.Source(
            reader.store, [program], schema.number("image"), MAX, [(name, schema.number(name), [program])]
        )
        with pytest.raises(SampleError, match=f"field '{name}': its pixels have"):
            core.Decoder().decode(source, 0, 0, 0, [core.Output(), own], into, sizes)
    with pytest.raises(fastload.errors.TransformError, match="65 images"):
        core.Source(reader.store, [program], 0, MAX, [("second", 1, [program] * 64)])
    with pytest.raises(ArgumentError, match="2 numbers of a field for 1 shards"):
        core.Source(reader.store, [program], 0, MAX, [("second", np.zeros(2, np.uint16), [program])])
    by_shard = core.Source(
        reader.store,
        [program],
        0,
        MAX,
        [("second", np.array([schema.number("second")], np.uint16), [program])],
    )
    second = stored_pixels(reader, 0, "second")
    into = [np.empty((64, 48, 3), np.uint8), np.empty_like(second)]
    sizes = [(48, 64), (second.shape[1], second.shape[0])]
    core.Decoder().decode(
        by_shard, 0, 0, 0, [core.Output(), core.Output()], [each.reshape(-1) for each in into], sizes
    )
    assert np.array_equal(into[1], second)
    for planes in ((0, 1), (5, 1), (1, 3)):
        with pytest.raises(ArgumentError, match="planes of"):
            core.Output("uint8", "HWC", None, planes)
    with pytest.raises(ArgumentError, match="65536 values"):
        core.Output("float32", "HWC", np.zeros((3, 256), np.float32), (1, 2))
