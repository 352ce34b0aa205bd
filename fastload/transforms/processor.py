"""processor: the native transform of a Hugging Face image processor, of its configuration file."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from fastload.common.files import expanded, read_regular
from fastload.errors import TransformError
from fastload.transforms.ops import CenterCrop, Normalize, Patches, Resize, ToFloat, Transform


class _Kind(NamedTuple):
    """Settings of a processor whose file does not say.

    Attributes:
        mean, std: mean and standard deviation of values from 0 to 1.
        resample: Pillow's number of the filter.
        size: as `size` of a file; None: the nearest grid of patches.
        crops: True if the middle is cut out.
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]
    resample: int = 3
    size: Mapping[str, int] | None = None
    crops: bool = False


_CLIP = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
_HALF = (0.5,) * 3, (0.5,) * 3
_SQUARE = {"height": 224, "width": 224}
KINDS = {
    "Qwen2VL": _Kind(*_CLIP),
    "CLIP": _Kind(*_CLIP, size={"shortest_edge": 224}, crops=True),
    "Siglip": _Kind(*_HALF, size=_SQUARE),
    "ViT": _Kind(*_HALF, 2, _SQUARE),
}
"""Settings by the beginning of image_processor_type: of Qwen2-VL, Qwen2.5-VL, Qwen3-VL and what follows them;
of CLIP and LLaVA; of SigLIP and PaliGemma; of ViT."""
_ENDINGS = "ImageProcessor", "ImageProcessorFast", "ImageProcessorPil"
_FILES = "preprocessor_config.json", "processor_config.json"
_FILTERS = {2: "bilinear", 3: "bicubic"}
"""Pillow's numbers of the filters that are native."""
_MOST = 1 << 20
_LEVEL = 1 / 255


def processor(path: str | os.PathLike[str], *, dct_scale: bool = True) -> list[Transform]:
    """The transform of a Hugging Face image processor: Patches, or Resize and CenterCrop; and Normalize or
    ToFloat.

    Args:
        path: its preprocessor_config.json, or the folder of that.
        dct_scale: see RandomResizedCrop.

    Raises:
        TransformError: the file cannot be read, or has a processor or a step that is not native.
    """
    name, config = _read(path)
    named = config.get("image_processor_type")
    kind = next((KINDS[each] for each in KINDS for end in _ENDINGS if named == each + end), None)
    if kind is None:
        native = ", ".join(each + _ENDINGS[0] for each in KINDS)
        raise TransformError(f"{name}: image_processor_type is {named!r}; native are {native}")
    filtered = _FILTERS.get(_given(config, name, "resample", kind.resample))
    if filtered is None:
        raise TransformError(
            f"{name}: resample is {config['resample']!r}; native are 2 (bilinear) and 3 (bicubic)"
        )
    scaled, normal = (_given(config, name, key, True) for key in ("do_rescale", "do_normalize"))
    if scaled and not math.isclose(_given(config, name, "rescale_factor", _LEVEL), _LEVEL):
        raise TransformError(f"{name}: rescale_factor is {config['rescale_factor']!r}; native is 1/255")
    if normal and not scaled:
        raise TransformError(
            f"{name}: do_normalize without do_rescale normalises bytes: give both, or neither"
        )
    shaped = (
        [_patches(config, name, scaled, filtered, dct_scale)]
        if kind.size is None
        else _sized(config, name, kind, filtered, dct_scale)
    )
    if normal:
        mean = _three(config, name, "image_mean", kind.mean)
        return [*shaped, Normalize(mean, _three(config, name, "image_std", kind.std))]
    return [*shaped, ToFloat()] if scaled else shaped


def _patches(config: Mapping[str, Any], name: str, scaled: bool, filtered: str, dct_scale: bool) -> Transform:
    """Patches of the nearest grid."""
    if not _given(config, name, "do_resize", True):
        raise TransformError(f"{name}: do_resize is false, and a grid of patches needs a resize")
    least, most = _limits(config, name)
    return Patches(
        _given(config, name, "patch_size", 14),
        _given(config, name, "merge_size", 2),
        _given(config, name, "temporal_patch_size", 2),
        least,
        most,
        None if scaled else "uint8",
        filtered,
        dct_scale=dct_scale,
    )


def _sized(
    config: Mapping[str, Any], name: str, kind: _Kind, filtered: str, dct_scale: bool
) -> list[Transform]:
    """Resize and CenterCrop, as far as the file has them."""
    if key := next((key for key in ("do_pad", "use_square_size") if config.get(key)), None):
        raise TransformError(f"{name}: {key} is {config[key]!r}, which is not native")
    steps: list[Transform] = []
    if _given(config, name, "do_resize", True):
        size = _size(config, name, "size", kind.size or _SQUARE)
        steps.append(Resize(size, filtered, dct_scale=dct_scale))
    if _given(config, name, "do_center_crop", kind.crops):
        steps.append(CenterCrop(_size(config, name, "crop_size", _SQUARE), floor=True))
    return steps


def _size(
    config: Mapping[str, Any], name: str, key: str, default: Mapping[str, int]
) -> int | tuple[int, int]:
    """(height, width), or the shorter side. Raises TransformError for other sizes."""
    given = config.get(key)
    found = default if given is None else given
    found = found if isinstance(found, Mapping) else dict.fromkeys(default, found)
    sides = {each: side for each, side in found.items() if side is not None}
    if all(isinstance(side, int) and not isinstance(side, bool) for side in sides.values()):
        if sides.keys() == {"height", "width"}:
            return sides["height"], sides["width"]
        if sides.keys() == {"shortest_edge"}:
            return int(sides["shortest_edge"])
    raise TransformError(f"{name}: {key} is {given!r}; native are height and width, or shortest_edge")


def _read(path: str | os.PathLike[str]) -> tuple[str, Mapping[str, Any]]:
    """The file's name, and the configuration in it. Raises TransformError."""
    file = expanded(path)
    if os.path.isdir(file):
        there = [each for each in (os.path.join(file, name) for name in _FILES) if os.path.exists(each)]
        if not there:
            raise TransformError(f"{file}: the folder has no {' or '.join(_FILES)}")
        file = there[0]
    try:
        found = json.loads(read_regular(file, _MOST))
    except (OSError, ValueError, RecursionError) as error:
        raise TransformError(f"{file}: the processor's configuration cannot be read: {error}") from None
    found = found.get("image_processor", found) if isinstance(found, dict) else None
    if not isinstance(found, dict):
        raise TransformError(f"{file}: this is no configuration of an image processor")
    return file, found


def _given(config: Mapping[str, Any], name: str, key: str, default: Any) -> Any:
    """A value of the configuration, or the processor's default. Raises TransformError for another type than
    the default has."""
    value = config.get(key)
    if value is None:
        return default
    kind = (int, float) if isinstance(default, float) else type(default)
    if not isinstance(value, kind) or (isinstance(value, bool) and not isinstance(default, bool)):
        raise TransformError(f"{name}: {key} is {value!r}, which is no {type(default).__name__}")
    return value


def _limits(config: Mapping[str, Any], name: str) -> tuple[int, int]:
    """Least and most pixels of a grid."""
    size = config.get("size")
    size = size if isinstance(size, dict) else {}
    default = Patches()
    least = _given(size, name, "shortest_edge", default.min_pixels)
    most = _given(size, name, "longest_edge", default.max_pixels)
    return _given(config, name, "min_pixels", least), _given(config, name, "max_pixels", most)


def _three(config: Mapping[str, Any], name: str, key: str, default: tuple[float, ...]) -> tuple[float, ...]:
    value = config.get(key)
    if value is None:
        return default
    numbers = value if isinstance(value, Sequence) and not isinstance(value, str) else [value] * 3
    if len(numbers) != 3 or not all(isinstance(each, int | float) for each in numbers):
        raise TransformError(f"{name}: {key} is {value!r}; native are three numbers")
    return tuple(float(each) for each in numbers)
