"""processor: the native transform of a Hugging Face image processor, of its configuration file."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

from fastload.common.files import expanded, read_regular
from fastload.errors import TransformError
from fastload.transforms.ops import Normalize, Patches, ToFloat, Transform

KINDS = ("Qwen2VLImageProcessor", "Qwen2VLImageProcessorFast", "Qwen2VLImageProcessorPil")
"""Values of image_processor_type: those of Qwen2-VL, Qwen2.5-VL, Qwen3-VL and what follows them."""
_FILES = "preprocessor_config.json", "processor_config.json"
_FILTERS = {2: "bilinear", 3: "bicubic"}
"""Pillow's numbers of the filters that are native."""
_MOST = 1 << 20
_LEVEL = 1 / 255


def processor(path: str | os.PathLike[str], *, dct_scale: bool = True) -> list[Transform]:
    """The transform of a Hugging Face image processor: Patches, and Normalize or ToFloat.

    Args:
        path: its preprocessor_config.json, or the folder of that.
        dct_scale: see RandomResizedCrop.

    Raises:
        TransformError: the file cannot be read, or has a processor or a step that is not native.
    """
    name, config = _read(path)
    kind = config.get("image_processor_type")
    if kind not in KINDS:
        raise TransformError(f"{name}: image_processor_type is {kind!r}; native is {KINDS[0]}")
    if not _given(config, name, "do_resize", True):
        raise TransformError(f"{name}: do_resize is false, and a grid of patches needs a resize")
    filtered = _FILTERS.get(_given(config, name, "resample", 3))
    if filtered is None:
        raise TransformError(
            f"{name}: resample is {config['resample']!r}; native are 2 (bilinear) and 3 (bicubic)"
        )
    least, most = _limits(config, name)
    scaled, normal = (_given(config, name, key, True) for key in ("do_rescale", "do_normalize"))
    if scaled and not math.isclose(_given(config, name, "rescale_factor", _LEVEL), _LEVEL):
        raise TransformError(f"{name}: rescale_factor is {config['rescale_factor']!r}; native is 1/255")
    if normal and not scaled:
        raise TransformError(
            f"{name}: do_normalize without do_rescale normalises bytes: give both, or neither"
        )
    patches = Patches(
        _given(config, name, "patch_size", 14),
        _given(config, name, "merge_size", 2),
        _given(config, name, "temporal_patch_size", 2),
        least,
        most,
        None if scaled else "uint8",
        filtered,
        dct_scale=dct_scale,
    )
    if normal:
        return [patches, Normalize(*(_three(config, name, key) for key in ("image_mean", "image_std")))]
    return [patches, ToFloat()] if scaled else [patches]


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


_DEFAULTS = {
    "image_mean": (0.48145466, 0.4578275, 0.40821073),
    "image_std": (0.26862954, 0.26130258, 0.27577711),
}
"""Means and standard deviations of CLIP, which the processor has by default."""


def _three(config: Mapping[str, Any], name: str, key: str) -> tuple[float, ...]:
    value = config.get(key)
    if value is None:
        return _DEFAULTS[key]
    numbers = value if isinstance(value, Sequence) and not isinstance(value, str) else [value] * 3
    if len(numbers) != 3 or not all(isinstance(each, int | float) for each in numbers):
        raise TransformError(f"{name}: {key} is {value!r}; native are three numbers")
    return tuple(float(each) for each in numbers)
