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
    check_same(theirs, tmp_path, photos)


def check_same(theirs: Any, folder: Path, photos: Path) -> None:
    """What a processor makes of each photo, and what the transform of its folder makes, within a level."""
    steps = fastload.processor(folder, dct_scale=False)
    bytes_of, made = PackedDataset(photos), PackedDataset(photos, steps)
    std = torch.tensor(steps[-1].std) if steps and isinstance(steps[-1], Normalize) else torch.ones(3)
    unit = 255 if theirs.do_rescale else 1
    for index in range(len(made)):
        image = Image.fromarray(bytes_of[index][0].permute(1, 2, 0).numpy())
        expected = torch.as_tensor(theirs(images=[image], return_tensors="pt")["pixel_values"][0])
        assert made[index][0].shape == expected.shape
        differ = (made[index][0].double() - expected).abs() * std.view(3, 1, 1) * unit
        assert differ.max() <= 1.001


CLIP_OF_OPENAI = {
    "crop_size": 224,
    "do_center_crop": True,
    "do_normalize": True,
    "do_resize": True,
    "feature_extractor_type": "CLIPFeatureExtractor",
    "image_mean": [0.48145466, 0.4578275, 0.40821073],
    "image_std": [0.26862954, 0.26130258, 0.27577711],
    "resample": 3,
    "size": 224,
}
CLIP, SIGLIP, VIT = ({"image_processor_type": f"{each}ImageProcessor"} for each in ("CLIP", "Siglip", "ViT"))
HUGE = 10**400
OFF = {"do_rescale": None, "do_normalize": None}


@pytest.mark.parametrize("backend", ["torchvision", "pil"])
@pytest.mark.parametrize(
    ("config", "whole"),
    [
        (CLIP_OF_OPENAI, None),
        ({"feature_extractor_type": "ViTFeatureExtractor", "size": 40}, None),
        ({**CLIP, "size": 64, "crop_size": 50}, None),
        ({**SIGLIP, "size": 64}, None),
        ({**VIT, "size": 64}, None),
        ({**VIT, "size": 64, "do_center_crop": True, "crop_size": 50}, None),
        ({**VIT, **OFF, "rescale_factor": None, "image_mean": None, "image_std": None}, None),
        ({**CLIP, "do_center_crop": None, "crop_size": None, "size": 64}, None),
        ({**CLIP, "do_resize": None, "size": None, "resample": None, "crop_size": 50}, None),
        ({**VIT, "do_normalize": None}, None),
        ({**VIT, "size": 50}, {"image_processor": {**VIT, "size": 70}}),
        ({**VIT, "size": 50}, {"image_processor": None}),
        ({**VIT, "size": 50, "image_processor": {**VIT, "size": 70}}, {"processor_class": "X"}),
    ],
    ids=str,
)
def test_files_as_transformers_reads_them(
    config: dict[str, Any], whole: dict[str, Any] | None, backend: str, photos: Path, tmp_path: Path
) -> None:
    """Older forms, bare numbers, switches that are null, and folders with both files."""
    transformers = pytest.importorskip("transformers")
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(config))
    if whole is not None:
        (tmp_path / "processor_config.json").write_text(json.dumps(whole))
    check_same(transformers.AutoImageProcessor.from_pretrained(tmp_path, backend=backend), tmp_path, photos)


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
    assert fastload.processor(written(tmp_path, size=None, min_pixels=None, max_pixels=None))[0] == Patches()
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
        ({"do_resize": False}, "do_resize is off"),
        ({"do_resize": None}, "do_resize is off"),
        ({"do_rescale": None}, "do_normalize without do_rescale"),
        *(
            ({key: None}, f"{key} is null")
            for key in ("resample", "rescale_factor", "image_mean", "image_std", "patch_size")
        ),
        *(({**each, "size": None}, "size is null") for each in (CLIP, SIGLIP, VIT)),
        ({**CLIP, "crop_size": None}, "crop_size is null"),
        ({**CLIP, "crop_size": {"shortest_edge": 5}}, "crop_size is .* native are height and width$"),
        ({**VIT, "do_center_crop": True}, "crop_size is null"),
        *(
            ({"size": size}, "native are shortest_edge and longest_edge")
            for size in (5, [1, 2], {"shortest_edge": 5000}, {"min_pixels": 100, "max_pixels": 5000})
        ),
        ({"size": {"shortest_edge": 5000, "longest_edge": None}}, "longest_edge is null"),
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


@pytest.mark.parametrize(
    "config",
    [
        *(
            {key: [number, 1, 1]}
            for key in ("image_mean", "image_std")
            for number in (HUGE, 1e39, float("nan"), float("inf"), True)
        ),
        *({"image_std": [number, 1, 1]} for number in (0, 0.0, 1e-320)),
        *({"rescale_factor": number} for number in (HUGE, float("nan"), float("inf"))),
        *({key: HUGE} for key in ("min_pixels", "patch_size")),
        *({**CLIP, key: 1 << shift} for key in ("size", "crop_size") for shift in (25, 31, 32, 1300)),
    ],
    ids=lambda config: str(config)[:60],
)
def test_numbers_beyond_all_images(config: dict[str, Any], tmp_path: Path) -> None:
    """Each is one TransformError, not an error of the numbers' conversion, and not an image of NaN."""
    with pytest.raises(TransformError):
        fastload.processor(written(tmp_path, **config))


@pytest.mark.parametrize("data", ["", "[1]", '{"image_processor": 3}', "[" * 100_000])
def test_files_that_are_no_configuration(data: str, tmp_path: Path) -> None:
    path = tmp_path / "preprocessor_config.json"
    path.write_text(data)
    with pytest.raises(TransformError, match=r"preprocessor_config\.json: "):
        fastload.processor(path)
    for missing in (tmp_path / "gone.json", tmp_path / "empty"):
        (tmp_path / "empty").mkdir(exist_ok=True)
        with pytest.raises(TransformError, match=r"cannot be read|has no preprocessor_config\.json, and"):
            fastload.processor(missing)
