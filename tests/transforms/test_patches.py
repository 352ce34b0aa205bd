"""transforms.Patches: sizes, pixels and order of Hugging Face's Qwen2-VL processors, and of the definition;
the same on every engine; plans by stored sizes."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torchvision_ops  # noqa: F401  (torchvision, which transformers imports, asks for operators that a plain CPU build lacks)
from hypothesis import example, given
from hypothesis import strategies as st
from pictures import photo, write_folder
from PIL import Image
from torch.utils.data import DataLoader

import fastload
from fastload import FastLoader, Mixture, PackedDataset, PatchedImages, TokenBatches
from fastload import transforms as T
from fastload._native import core
from fastload.errors import ArgumentError, BatchShapeError, SampleError, TransformError

MEAN, STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
MOST = 224 * 224
PATCHES = T.Patches(max_pixels=MOST, dct_scale=False)
NORMALIZE = T.Normalize(MEAN, STD)


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """24 photographs of many sizes, some of them odd, packed."""
    root = tmp_path_factory.mktemp("photos")
    odd = {0: (30, 90), 1: (20, 300), 2: (29, 31), 3: (500, 28), 4: (641, 427), 5: (224, 224)}
    fastload.pack(
        write_folder(root / "src", 24, size=lambda i: odd.get(i, (150 + 37 * i % 200, 180 + 53 * i % 220))),
        root / "photos.fl",
    )
    return root / "photos.fl"


def opened(path: Path, *transform: object, **more: Any) -> PackedDataset:
    return PackedDataset(path, list(transform), **{"fields": ("image", "label"), "seed": 1, **more})


def grid_of(height: int, width: int, side: int, least: int, most: int) -> tuple[int, int]:
    """(height, width) by the engine."""
    op = {"kind": "patch_grid", "options": (side, least, most)}
    wide, high = core.Program([op]).size(width, height)
    return high, wide


@given(
    st.integers(1, 5000),
    st.integers(1, 5000),
    st.sampled_from(
        [(28, 56 * 56, 28 * 28 * 1280), (32, 65536, 16777216), (28, 1000, 448 * 448), (14, 1, 196)]
    ),
)
@example(14, 42, (28, 56 * 56, 28 * 28 * 1280))  # halves go to even
@example(10, 2000, (28, 56 * 56, 28 * 28 * 1280))
@example(10, 2001, (28, 56 * 56, 28 * 28 * 1280))
def test_sizes_are_the_processors(height: int, width: int, by: tuple[int, int, int]) -> None:
    """smart_resize of transformers, or its refusal."""
    pytest.importorskip("transformers")
    from transformers.models.qwen2_vl.image_processing_qwen2_vl import smart_resize

    try:
        expected = smart_resize(height, width, *by)
    except ValueError as error:
        assert "aspect ratio" in str(error)
        with pytest.raises(
            ArgumentError, match=f"its {height} x {width} pixels .* more than 200 times as long"
        ):
            grid_of(height, width, *by)
        return
    assert grid_of(height, width, *by) == expected


def levels(values: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
    """The difference of two normalised images, in levels of a byte."""
    return (values - others).view(-1, 3, 392).abs() * torch.tensor(STD).view(1, 3, 1) * 255


@pytest.mark.parametrize("where", ["odd", pytest.param("corpus", marks=pytest.mark.long)])
def test_pixels_are_the_processors(
    where: str, photos: Path, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Grids equal, and values within a level of a byte of the processor of transformers. Its processor for
    Pillow differs from that one by more, since Pillow 13 resizes down before across: within a level of what
    lies between the two."""
    models = "transformers.models.qwen2_vl"
    fast = pytest.importorskip(f"{models}.image_processing_qwen2_vl").Qwen2VLImageProcessor
    slow = pytest.importorskip(f"{models}.image_processing_pil_qwen2_vl").Qwen2VLImageProcessorPil
    if where == "corpus":
        photos = tmp_path / "corpus.fl"
        fastload.pack(request.getfixturevalue("shared") / "corpus" / "in500", photos)
    processors = [kind(min_pixels=56 * 56, max_pixels=MOST) for kind in (fast, slow)]
    bytes_of, made = opened(photos), opened(photos, PATCHES, NORMALIZE)
    for index in range(len(made)):
        image, (found, _) = Image.fromarray(bytes_of[index][0].permute(1, 2, 0).numpy()), made[index]
        theirs = [each(images=[image], return_tensors="pt") for each in processors]
        assert all((found.image_grid_thw == torch.as_tensor(each["image_grid_thw"])).all() for each in theirs)
        by_fast, by_slow = (torch.as_tensor(each["pixel_values"]) for each in theirs)
        assert levels(found.pixel_values, by_fast).max() <= 1.0001
        assert (levels(found.pixel_values, by_slow) <= levels(by_fast, by_slow) + 1.0001).all()


def cut(image: torch.Tensor, patch: int, merge: int, temporal: int) -> torch.Tensor:
    """The patches of an image (channels, height, width), by the definition."""
    channels, height, width = image.shape
    by = patch * merge
    parts = image.view(channels, height // by, merge, patch, width // by, merge, patch)
    parts = parts.permute(1, 4, 2, 5, 0, 3, 6).reshape(-1, channels, 1, patch, patch)
    return parts.expand(-1, -1, temporal, -1, -1).reshape(len(parts), -1)


@pytest.mark.parametrize("form", [(14, 2, 2), (16, 2, 1), (7, 1, 3), (32, 1, 1), (9, 3, 2)], ids=str)
@pytest.mark.parametrize("dtype", ["uint8", "float32", "float16", "bfloat16"])
def test_order_of_patches(form: tuple[int, int, int], dtype: str, photos: Path) -> None:
    """Bit for bit the pixels of Resize to the same size, cut by the definition; mirrored, too."""
    patch, merge, temporal = form
    step = T.Patches(patch, merge, temporal, max_pixels=40_000, dtype=dtype)
    flips = T.RandomHorizontalFlip(0.5), T.RandomVerticalFlip(0.5)
    last = (T.Normalize(MEAN, STD),) * (dtype != "uint8")
    made = opened(photos, *flips, step, *last)
    for index in range(10):
        found, _ = made[index]
        _, down, across = found.image_grid_thw[0].tolist()
        size = down * patch, across * patch
        resized = opened(photos, *flips, T.Resize(size, "bicubic"), *last)
        if dtype in ("uint8", "float32"):
            image = resized[index][0]
        else:
            loader = FastLoader(resized, batch_size=1, sampler=[index], dtype=getattr(torch, dtype))
            image = next(iter(loader))[0][0]
        assert found.pixel_values.dtype == getattr(torch, dtype)
        assert torch.equal(found.pixel_values, cut(image, *form))


def joined(dataset: PackedDataset, indices: Any) -> PatchedImages:
    return PatchedImages(*(torch.cat(each) for each in zip(*(dataset[i][0] for i in indices), strict=True)))


@pytest.mark.parametrize(
    "steps", [(PATCHES, NORMALIZE), (T.RandomCrop((20, 28)), PATCHES)], ids=["all", "crop"]
)
@pytest.mark.parametrize(
    "arguments",
    [
        {"num_workers": 0},
        {"num_workers": 2},
        {"num_workers": 0, "engine": "python"},
        {"num_workers": 2, "engine": "python"},
        {"num_workers": 2, "collate": "padded", "pad_to": 1},
        {"num_workers": 2, "collate": "flat"},
        {"num_workers": 2, "engine": "python", "collate": "padded"},
    ],
    ids=str,
)
def test_batches(arguments: dict[str, Any], steps: tuple[Any, ...], photos: Path) -> None:
    """The images of a batch one after another, equal on every engine and in torch's DataLoader; also where
    all are of one size."""
    dataset = opened(photos, *steps)
    with FastLoader(dataset, batch_size=5, **arguments) as loader:
        batches = [(type(images), *images, labels) for images, labels in loader]
    plain = list(DataLoader(dataset, batch_size=5))
    for number, (kind, values, grids, labels) in enumerate(batches):
        expected = joined(dataset, range(5 * number, min(24, 5 * number + 5)))
        assert kind is PatchedImages
        assert torch.equal(values, expected.pixel_values)
        assert torch.equal(grids, expected.image_grid_thw)
        assert torch.equal(values, plain[number][0].pixel_values)
        assert torch.equal(labels, plain[number][1])


@pytest.mark.parametrize("engine", ["auto", "python"])
def test_lists_and_single_samples(engine: Any, photos: Path) -> None:
    """collate="list", a collate function and batch_size=None get the patches of each sample."""
    dataset = opened(photos, PATCHES)
    given_: list[dict[str, Any]] = [
        {"batch_size": 4, "collate": "list"},
        {"batch_size": 4, "collate_fn": lambda samples: ([image for image, _ in samples],)},
    ]
    for arguments in given_:
        with FastLoader(dataset, num_workers=2, engine=engine, **arguments) as loader:
            for number, (images, *_) in enumerate(loader):
                for row, image in enumerate(images):
                    assert torch.equal(image.pixel_values, dataset[4 * number + row][0].pixel_values)
    with FastLoader(dataset, batch_size=None, num_workers=2, engine=engine) as loader:
        for index, (image, _) in enumerate(loader):
            assert torch.equal(image.pixel_values, dataset[index][0].pixel_values)


@pytest.mark.parametrize("rule", ["skip", "replace", "raise"])
def test_images_without_a_grid(rule: Any, tmp_path: Path) -> None:
    """One that is too long is an error that names it; skipped, or replaced by another."""
    source = tmp_path / "src" / "a"
    source.mkdir(parents=True)
    for number, (height, width) in enumerate([(80, 90), (3, 700), (100, 60), (64, 64)]):
        photo(number, height, width).save(source / f"{number}.jpg")
    fastload.pack(source.parent, tmp_path / "out.fl")
    dataset = opened(tmp_path / "out.fl", PATCHES)
    with FastLoader(dataset, batch_size=4, num_workers=2, on_error=rule) as loader:
        if rule == "raise":
            with pytest.raises(
                SampleError, match=r"sample 1 .* its 3 x 700 pixels .* more than 200 times as long"
            ):
                list(loader)
            return
        ((images, labels),) = loader
        assert loader.stats()["skipped" if rule == "skip" else "replaced"] == 1
    assert len(labels) == (3 if rule == "skip" else 4)
    expected = [dataset[index][0].pixel_values for index in (0, 2, 3)]
    parts = list(images.pixel_values.split(images.image_grid_thw.prod(dim=1).tolist()))
    if rule == "replace":
        instead = parts.pop(1)
        assert any(torch.equal(instead, each) for each in expected)
    assert all(torch.equal(a, b) for a, b in zip(parts, expected, strict=True))


def test_a_plan_by_sizes(photos: Path) -> None:
    """TokenBatches of a dataset counts as the transform makes them, without opening an image; further tokens
    are a column or numbers."""
    dataset = opened(photos, PATCHES)
    grids = joined(dataset, range(24)).image_grid_thw.prod(dim=1).numpy()
    batches = TokenBatches(dataset, 400, text=np.full(24, 9), bins=2)
    assert (batches.patches[:] == grids).all()
    assert (batches.lengths[:] == grids // 4 + 9).all()
    labels = dataset.column("label")
    assert (TokenBatches(dataset, 400, text="label").lengths[:] == grids // 4 + labels).all()
    with FastLoader(dataset, batch_sampler=batches, num_workers=2) as loader:
        counts = [int(images.image_grid_thw.prod(dim=1).sum()) // 4 + 9 * len(own) for images, own in loader]
    assert max(counts) <= 400
    assert sum(counts) == (grids // 4 + 9).sum()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda ds: TokenBatches(opened(ds), 8), "no transforms.Patches"),
        (lambda ds: TokenBatches(opened(ds, T.RandomResize(20, 40)), 8), "no transforms.Patches"),
        (lambda ds: TokenBatches(opened(ds, T.RandomZoomOut(), PATCHES), 8), "draws the sizes"),
        (lambda ds: TokenBatches(opened(ds, PATCHES), 800, text="image"), "text='image' is no column"),
        (
            lambda ds: TokenBatches(opened(ds, PATCHES), 800, text=[1]),
            "text of 1 samples, the dataset has 24",
        ),
        (lambda ds: TokenBatches([1], 8, text=[1]), "text= is for a dataset"),
    ],
)
def test_plans_that_are_refused(make: Any, message: str, photos: Path) -> None:
    with pytest.raises(ArgumentError, match=message):
        make(photos)


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ((PATCHES, T.RandomHorizontalFlip()), "after Patches: put it before"),
        ((PATCHES, T.CenterCrop(20)), "after Patches: put it before"),
        ((PATCHES, lambda image: image), "comes after Patches, which only ToFloat and Normalize may"),
        ((T.Resize(30), PATCHES), "is a second resize"),
        ((T.RandomIoUCrop(), PATCHES), "RandomIoUCrop"),
        ((T.Views([PATCHES, PATCHES]),), "Patches are made of one image, not of several views"),
        ((T.Patches(dtype="uint8"), NORMALIZE), r"after Patches\(dtype='uint8'\): leave dtype out"),
        ((lambda image: image, PATCHES), "runs in Python: put fastload's transforms first"),
    ],
)
def test_lists_without_a_meaning(steps: Any, message: str, photos: Path) -> None:
    with pytest.raises(TransformError, match=message):
        opened(photos, *steps)


@pytest.mark.parametrize(
    "arguments",
    [
        {"patch": 0},
        {"merge": 2.0},
        {"temporal": 65},
        {"min_pixels": 0},
        {"min_pixels": 5000, "max_pixels": 4000},
        {"max_pixels": 27 * 28, "min_pixels": 1},
        {"dtype": "int32"},
        {"interpolation": "lanczos"},
    ],
    ids=str,
)
def test_arguments_out_of_range(arguments: dict[str, Any]) -> None:
    with pytest.raises(TransformError, match=r"^Patches: "):
        T.Patches(**arguments)


def test_what_a_loader_refuses(photos: Path) -> None:
    """A stage for batches of images, bytes of what is normalised, and images of other than 8-bit RGB."""
    from fastload.augment import AugmentBatch, RandomHorizontalFlip

    dataset = opened(photos, PATCHES, NORMALIZE)
    with pytest.raises(ArgumentError, match="batch_transform= is for images"):
        iter(
            FastLoader(
                dataset, batch_size=2, num_workers=1, batch_transform=AugmentBatch([RandomHorizontalFlip()])
            )
        )
    with pytest.raises(ArgumentError, match="dtype=uint8"):
        iter(FastLoader(dataset, batch_size=2, num_workers=1, dtype=torch.uint8))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("engine", ["auto", "python"])
def test_floats_of_whole_batches(engine: Any, dtype: torch.dtype, photos: Path) -> None:
    """Bytes cross to the device, and are normalised there, to the bits of the native pass."""
    dataset = opened(photos, T.Patches(max_pixels=MOST, dct_scale=False, dtype="uint8"))
    expected = joined(opened(photos, PATCHES, NORMALIZE), range(6))
    arguments: dict[str, Any] = {"num_workers": 2, "engine": engine, "device": "cpu", "dtype": dtype}
    with FastLoader(dataset, batch_size=6, batch_transform=[NORMALIZE], **arguments) as loader:
        images, _ = next(iter(loader))
    assert torch.equal(images.pixel_values, expected.pixel_values.to(dtype))
    assert torch.equal(images.image_grid_thw, expected.image_grid_thw)


@pytest.mark.parametrize("engine", ["auto", "python"])
@pytest.mark.parametrize("more", [{}, {"memory_format": torch.channels_last}, {"batch_size": None}], ids=str)
def test_the_dtype_of_the_loader(engine: Any, more: dict[str, Any], photos: Path) -> None:
    """Of patches as of images; a memory format they have not."""
    dataset = opened(photos, PATCHES, NORMALIZE)
    arguments = {"batch_size": 2, "num_workers": 1, "dtype": torch.bfloat16, "engine": engine, **more}
    with FastLoader(dataset, **arguments) as loader:
        images, _ = next(iter(loader))
    count = 2 if arguments["batch_size"] else 1
    assert images.pixel_values.dtype == torch.bfloat16
    assert torch.equal(images.pixel_values, joined(dataset, range(count)).pixel_values.to(torch.bfloat16))


def test_other_patches_in_the_next_epoch(photos: Path) -> None:
    """A transform that is changed between epochs holds from the next one on."""
    dataset = opened(photos, T.Patches(14, max_pixels=MOST))
    with FastLoader(dataset, batch_size=8, num_workers=2) as loader:
        assert next(iter(loader))[0].pixel_values.shape[1] == 3 * 2 * 14 * 14
        dataset.transform = [T.Patches(16, max_pixels=MOST)]
        assert next(iter(loader))[0].pixel_values.shape[1] == 3 * 2 * 16 * 16


@pytest.mark.parametrize("kind", ["dct", "raw", "attached", "bucket"])
def test_stored_otherwise(kind: str, photos: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """The same patches of other codecs, of images left in place, and of a bucket."""
    more: dict[str, Any] = {}
    if kind == "attached":
        path: Any = tmp_path / "attached.fl"
        fastload.attach(photos.parent / "src", path)
    elif kind == "bucket":
        server = request.getfixturevalue("seaweedfs")
        more = {"storage_options": server.options(), "cache": tmp_path / "cache"}
        path = "s3://fastload/test-patches/photos.fl"
        fastload.push(photos, path, storage_options=server.options())
    else:
        path = tmp_path / "other.fl"
        fastload.convert(photos, path, encode=kind)
    dataset, plain = opened(path, PATCHES, NORMALIZE, **more), opened(photos, PATCHES, NORMALIZE)
    bins = TokenBatches(dataset, 300, bins=1, seed=2)
    assert list(bins) == list(TokenBatches(plain, 300, bins=1, seed=2))
    with FastLoader(dataset, batch_sampler=bins, num_workers=2) as loader:
        for batch, (images, _) in zip(bins, loader, strict=True):
            assert torch.equal(images.pixel_values, joined(plain, batch).pixel_values)


def test_a_mixture(photos: Path, tmp_path: Path) -> None:
    """Samples of two datasets; their transforms have to make alike patches."""
    shutil.copytree(photos, tmp_path / "other.fl")
    first, second = opened(photos, PATCHES), opened(tmp_path / "other.fl", PATCHES)
    mixture = Mixture({first: 0.5, second: 0.5}, samples_per_epoch=20, seed=0)
    with FastLoader(mixture, batch_size=5, num_workers=2) as loader:
        assert sum(len(images.image_grid_thw) for images, _ in loader) == 20
    second.transform = [T.Patches(16, max_pixels=MOST)]
    with (
        FastLoader(mixture, batch_size=5, num_workers=2) as loader,
        pytest.raises(
            BatchShapeError,
            match=r"patches of 1176 values of torch\.uint8 and of 1536 values of torch\.uint8",
        ),
    ):
        list(loader)
