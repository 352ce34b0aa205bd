"""processor(): the transform of a Hugging Face processor's configuration makes what the processor makes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import torchvision_ops  # noqa: F401  (torchvision, which transformers imports, asks for operators that a plain CPU build lacks)
from pictures import photo
from PIL import Image

import fastload
from fastload import PackedDataset
from fastload.errors import TransformError
from fastload.transforms import Normalize, Patches, ToFloat


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("photos")
    (root / "src" / "a").mkdir(parents=True)
    for number, (height, width) in enumerate([(240, 320), (30, 90), (500, 333), (64, 64)]):
        photo(number, height, width).save(root / "src" / "a" / f"{number}.jpg")
    fastload.pack(root / "src", root / "photos.fl")
    return root / "photos.fl"


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"size": {"shortest_edge": 5000, "longest_edge": 60_000}},
        {"patch_size": 16, "merge_size": 3, "temporal_patch_size": 1},
        {"image_mean": [0.5] * 3, "image_std": [0.5] * 3, "resample": 2},
        {"do_normalize": False},
        {"do_normalize": False, "do_rescale": False},
    ],
    ids=str,
)
def test_what_the_processor_makes(options: dict[str, Any], photos: Path, tmp_path: Path) -> None:
    """Grids equal, values within a level of a byte, of the file that it saves; also found in its folder."""
    kind = pytest.importorskip("transformers.models.qwen2_vl.image_processing_qwen2_vl").Qwen2VLImageProcessor
    theirs = kind(**options)
    theirs.save_pretrained(tmp_path)
    steps = fastload.processor(tmp_path / "preprocessor_config.json", dct_scale=False)
    assert fastload.processor(tmp_path, dct_scale=False) == steps
    bytes_of, made = PackedDataset(photos), PackedDataset(photos, steps)
    std = torch.tensor(steps[1].std) if isinstance(steps[-1], Normalize) else torch.ones(3)
    unit = 1 if len(steps) == 1 else 255
    for index in range(len(made)):
        image = Image.fromarray(bytes_of[index][0].permute(1, 2, 0).numpy())
        expected, (found, _) = theirs(images=[image], return_tensors="pt"), made[index]
        assert torch.equal(found.image_grid_thw, expected["image_grid_thw"])
        count = len(found.pixel_values)
        differ = (found.pixel_values.double() - expected["pixel_values"]).view(count, 3, -1).abs()
        assert (differ * std.view(1, 3, 1) * unit).max() <= 1.001


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("clip.image_processing_clip:CLIPImageProcessor", {}),
        (
            "clip.image_processing_clip:CLIPImageProcessor",
            {"size": {"shortest_edge": 63}, "crop_size": {"height": 50, "width": 52}},
        ),
        (
            "clip.image_processing_clip:CLIPImageProcessor",
            {"size": 41, "crop_size": 90, "do_normalize": False},
        ),
        ("clip.image_processing_clip:CLIPImageProcessor", {"do_resize": False, "crop_size": 31}),
        ("clip.image_processing_pil_clip:CLIPImageProcessorPil", {"size": {"shortest_edge": 36}}),
        ("siglip.image_processing_siglip:SiglipImageProcessor", {}),
        ("siglip.image_processing_siglip:SiglipImageProcessor", {"size": 48, "resample": 2}),
        ("vit.image_processing_vit:ViTImageProcessor", {}),
        ("vit.image_processing_vit:ViTImageProcessor", {"do_rescale": False, "do_normalize": False}),
    ],
    ids=str,
)
def test_what_processors_of_one_size_make(
    kind: str, options: dict[str, Any], photos: Path, tmp_path: Path
) -> None:
    """The same part of each image, within a level of a byte; odd margins, too."""
    module, _, name = kind.partition(":")
    theirs = getattr(pytest.importorskip(f"transformers.models.{module}"), name)(**options)
    theirs.save_pretrained(tmp_path)
    steps = fastload.processor(tmp_path, dct_scale=False)
    bytes_of, made = PackedDataset(photos), PackedDataset(photos, steps)
    std = torch.tensor(steps[-1].std) if isinstance(steps[-1], Normalize) else torch.ones(3)
    unit = 1 if theirs.do_rescale is False else 255
    for index in range(len(made)):
        image = Image.fromarray(bytes_of[index][0].permute(1, 2, 0).numpy())
        expected = torch.as_tensor(theirs(images=[image], return_tensors="pt")["pixel_values"][0])
        differ = (made[index][0].double() - expected).abs() * std.view(3, 1, 1) * unit
        assert differ.max() <= 1.001


def written(folder: Path, **config: Any) -> Path:
    path = folder / "preprocessor_config.json"
    path.write_text(json.dumps({"image_processor_type": "Qwen2VLImageProcessor", **config}))
    return path


def test_older_and_newer_files(tmp_path: Path) -> None:
    """min_pixels and max_pixels come before size; a file of the whole processor has the image's in it."""
    path = written(tmp_path, min_pixels=4000, max_pixels=50_000, size={"shortest_edge": 1, "longest_edge": 2})
    patches, normalize = fastload.processor(path)
    assert isinstance(patches, Patches)
    assert (patches.min_pixels, patches.max_pixels, patches.form) == (4000, 50_000, (14, 2, 2))
    assert isinstance(normalize, Normalize)
    (tmp_path / "all").mkdir()
    whole = {"image_processor": {"image_processor_type": "Qwen2VLImageProcessorFast", "do_normalize": False}}
    (tmp_path / "all" / "processor_config.json").write_text(json.dumps(whole))
    assert fastload.processor(tmp_path / "all")[1:] == [ToFloat()]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            {"image_processor_type": "SamImageProcessor"},
            "'SamImageProcessor'; native are Qwen2VLImageProcessor, CLIPImageProcessor, SiglipImageProcessor",
        ),
        (
            {"image_processor_type": "CLIPImageProcessor", "size": {"longest_edge": 5}},
            "size is {'longest_edge': 5}; native are height and width, or shortest_edge",
        ),
        (
            {"image_processor_type": "CLIPImageProcessor", "crop_size": True},
            "crop_size is True; native are height and width",
        ),
        (
            {"image_processor_type": "ViTImageProcessor", "do_pad": True},
            "do_pad is True, which is not native",
        ),
        ({"do_resize": False}, "do_resize is false"),
        ({"resample": 1}, r"resample is 1; native are 2 \(bilinear\)"),
        ({"rescale_factor": 1.0}, "rescale_factor is 1.0; native is 1/255"),
        ({"do_rescale": False}, "do_normalize without do_rescale"),
        ({"patch_size": "14"}, "patch_size is '14', which is no int"),
        ({"patch_size": True}, "patch_size is True, which is no int"),
        ({"image_std": [1, 2]}, r"image_std is \[1, 2\]; native are three numbers"),
        ({"min_pixels": 10, "max_pixels": 5}, "min_pixels=10, max_pixels=5"),
    ],
)
def test_steps_that_are_not_native(config: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(TransformError, match=message):
        fastload.processor(written(tmp_path, **config))


@pytest.mark.parametrize("data", ["", "[1]", '{"image_processor": 3}', "[" * 100_000])
def test_files_that_are_no_configuration(data: str, tmp_path: Path) -> None:
    path = tmp_path / "preprocessor_config.json"
    path.write_text(data)
    with pytest.raises(TransformError, match=r"preprocessor_config\.json: "):
        fastload.processor(path)
    for missing in (tmp_path / "gone.json", tmp_path / "empty"):
        (tmp_path / "empty").mkdir(exist_ok=True)
        with pytest.raises(TransformError, match=r"cannot be read|has no preprocessor_config\.json or"):
            fastload.processor(missing)
