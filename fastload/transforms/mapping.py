"""torchvision's transforms as native ones: each as one of fastload's if the pixels are the same, or the reason why not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fastload import transforms as T
from fastload.errors import TransformError
from fastload.transforms.native import NativePart, pads
from fastload.transforms.torchvision import Known, default_dtype, known, plain, replaced, sanitized_by

_EXACT = "decoded at full size, as torchvision's pixels need; fastload's {name} may shrink in the decoder (dct_scale)"


def take(step: Any, position: int, part: NativePart) -> str | TransformError | None:
    """Adds a step to the native part, if it can have it.

    Returns:
        A remark for explain() if the step is taken; None if there is nothing to do. If it is not taken, the reason as a TransformError,
        such as replaced code of a known class; the error is empty if nothing is known of the step.

    Raises:
        TransformError: a transform of fastload's own has no native meaning here.
    """
    if isinstance(step, T.Transform):
        part.add(step, position)
        return ""
    found = known(step)
    if found is None:
        return TransformError(replaced(step))
    if found.name not in _MAPPED:
        return TransformError("the decoder does not do it")
    try:
        note = _MAPPED[found.name](found, position, part)
    except TransformError as reason:
        return reason
    if not found.v2 or found.name in ("ToImage", "ToPureTensor"):
        part.is_tv = found.name == "ToImage"
    return note


def mapped(step: Any) -> bool:
    """Returns True if the native part can have steps of this class, at some places of a list."""
    found = known(step)
    return found is not None and found.name in _MAPPED


def _nothing(step: Known, position: int, part: NativePart) -> None:
    return None


def _to_tensor(step: Known, position: int, part: NativePart) -> str | None:
    if part.form == "image":
        if default_dtype() != "torch.float32":
            raise TransformError(f"it gives torch's default dtype, which is {default_dtype()}, and natively bytes become float32")
        part.add(T.ToFloat(), position)
        return ""
    if step.v2:
        return None
    raise TransformError("the image is a tensor already")


def _to_bytes(step: Known, position: int, part: NativePart) -> None:
    if part.form == "image":
        part.form = "uint8"
    elif not step.v2:
        raise TransformError("the image is a tensor already")


def _to_dtype(step: Known, position: int, part: NativePart) -> str | None:
    given, scale = step.values["dtype"], step.values.get("scale", True)
    if isinstance(given, Mapping):
        return _to_dtypes(given, scale, position, part)
    return _image_to_dtype(str(given), scale, position, part, step.v2)


def _to_dtypes(given: Mapping[Any, Any], scale: Any, position: int, part: NativePart) -> str | None:
    """A dtype for each of tv_tensors' classes: of images as of ToDtype(dtype), of masks the last conversion, of others none."""
    names = {key if isinstance(key, str) else key.__name__: value for key, value in given.items()}
    image, mask = names.pop("Image", None), names.pop("Mask", None)
    if any(value is not None for value in names.values()) or "others" not in names:
        raise TransformError(
            "natively images and masks are converted, and nothing else: give dtype={Image: ..., Mask: ..., 'others': None}"
        )
    note = None if image is None else _image_to_dtype(str(image), scale, position, part, True)
    if mask is not None:
        part.mask_dtype = str(mask).removeprefix("torch.")
        return note or ""
    return note


def _image_to_dtype(dtype: str, scale: Any, position: int, part: NativePart, v2: bool) -> str | None:
    if part.form == "image" and not part.is_tensor:
        if v2 and dtype.startswith("torch."):
            return None  # v2 converts tensors only, and lets a Pillow image pass
        raise TransformError("the image is no tensor yet")
    is_bytes = part.form in ("image", "uint8")
    if dtype == ("torch.uint8" if is_bytes else "torch.float32"):
        return None
    if not is_bytes or dtype != "torch.float32" or scale is not True:
        raise TransformError("natively bytes become float32 scaled to 0..1, and nothing else")
    part.add(T.ToFloat(), position)
    part.reciprocal = v2
    return ""


def _normalize(step: Known, position: int, part: NativePart) -> str:
    if part.form not in ("float", "normalized"):
        raise TransformError("it takes floats: put ToTensor, or ToDtype(torch.float32, scale=True), before it")
    part.add(T.Normalize(_numbers(step.values["mean"]), _numbers(step.values["std"])), position)
    return ""


def _numbers(values: Any) -> tuple[float, ...]:
    try:
        return tuple(float(v) for v in values)
    except (TypeError, ValueError):
        raise TransformError("mean and std must be sequences of numbers") from None


def _resize(step: Known, position: int, part: NativePart) -> str:
    values = step.values
    common = _resampling(step, part)
    if step.name == "Resize":
        part.add(T.Resize(plain(values["size"]), max_size=values["max_size"], **common), position, strict=True)
    elif step.name == "ScaleJitter":
        part.add(T.ScaleJitter(values["target_size"], scale_range=values["scale_range"], **common), position, strict=True)
    elif step.name == "RandomShortestSize":
        part.add(T.RandomShortestSize(values["min_size"], max_size=values["max_size"], **common), position, strict=True)
    elif step.name == "RandomResize":
        part.add(T.RandomResize(values["min_size"], values["max_size"], **common), position, strict=True)
    else:
        part.add(T.RandomResizedCrop(values["size"], scale=values["scale"], ratio=values["ratio"], **common), position)
    return _EXACT.format(name=step.name)


def _resampling(step: Known, part: NativePart) -> dict[str, Any]:
    """interpolation, antialias and dct_scale of a step that resizes."""
    if part.form not in ("image", "uint8"):
        raise TransformError("it resizes floats: put it before the conversion to floats")
    antialias = True if part.form == "image" else step.values["antialias"]  # Pillow always does
    if not isinstance(antialias, bool):
        raise TransformError(f"antialias={antialias!r}")
    return {"interpolation": step.values["interpolation"], "antialias": antialias, "dct_scale": False}


def _zoom_out(step: Known, position: int, part: NativePart) -> str:
    if part.form not in ("image", "uint8"):
        raise TransformError("it pads floats: put it before the conversion to floats")
    fill, mask_fill = _fills(step.values["fill"])
    part.add(T.RandomZoomOut(fill, side_range=plain(step.values["side_range"]), p=step.values["p"], mask_fill=mask_fill), position)
    return ""


def _iou_crop(step: Known, position: int, part: NativePart) -> str:
    values = dict(step.values)
    if part.form not in ("image", "uint8"):
        raise TransformError("it crops floats: put it before the conversion to floats")
    part.add(T.RandomIoUCrop(sampler_options=values.pop("options"), **values), position)
    return ""


def _sanitize(step: Known, position: int, part: NativePart) -> str:
    sizes = sanitized_by(step.step)
    if sizes is None:
        raise TransformError("its labels_getter is a function; fastload's SanitizeBoundingBoxes drops the rows of all fields of the boxes")
    part.add(T.SanitizeBoundingBoxes(*sizes), position, commutes=True)
    return "drops the rows of all fields of the boxes"


def _box_format(step: Known, position: int, part: NativePart) -> str:
    part.add(T.ConvertBoundingBoxFormat(step.values["format"]), position)
    return ""


def _center_crop(step: Known, position: int, part: NativePart) -> str:
    crop = T.CenterCrop(step.values["size"])
    if part.form == "normalized" and not part.holds(crop.size):  # type: ignore[arg-type]
        raise TransformError("it may pad what is normalised: put it before Normalize")
    part.add(crop, position, commutes=True)
    return ""


def _random_crop(step: Known, position: int, part: NativePart) -> str:
    values = step.values
    if values["padding_mode"] != "constant":
        raise TransformError(f"padding_mode={values['padding_mode']!r}")
    if isinstance(values["fill"], tuple | list) and part.form != "image" and not step.v2:
        raise TransformError("a fill by channel, of a tensor")
    fill, mask_fill = _fills(values["fill"])
    padding = values["padding"]
    if step.v2 and padding is not None:
        left, right, top, bottom = padding  # its constructor's order is left, top, right, bottom
        padding = (left, top, right, bottom)
    pad_if_needed = bool(values["pad_if_needed"])
    crop = T.RandomCrop(values["size"], padding=padding, pad_if_needed=pad_if_needed, fill=fill, mask_fill=mask_fill)
    if pads(crop) and part.form == "normalized":
        raise TransformError("it pads what is normalised: put it before Normalize")
    if pads(crop) and part.form == "float" and any(crop.fill):  # type: ignore[arg-type]
        raise TransformError("it pads floats with other than 0: put it before the conversion to floats")
    part.add(crop, position, commutes=True)
    return ""


def _fills(fill: Any) -> tuple[int | tuple[int, ...], int]:
    """The fills of images and of masks: one for all, or a mapping of tv_tensors' classes and "others". One colour pads masks with 0."""
    if not isinstance(fill, Mapping):
        return _bytes(fill), _label(fill)
    names = {key if isinstance(key, str) else key.__name__: value for key, value in fill.items()}
    return _bytes(names.get("Image", names.get("others", 0))), _label(names.get("Mask", names.get("others", 0)))


def _label(fill: Any) -> int:
    fill = 0 if isinstance(fill, tuple | list) and len(fill) > 1 else _bytes(fill)
    return fill if isinstance(fill, int) else 0


def _bytes(fill: Any) -> int | tuple[int, ...]:
    """A fill that is one whole number, or three."""
    values = fill if isinstance(fill, tuple | list) else (0 if fill is None else fill,)
    if len(values) not in (1, 3) or any(not isinstance(v, int | float) or v != int(v) for v in values):
        raise TransformError(f"fill={fill!r}")
    return tuple(int(v) for v in values) if len(values) == 3 else int(values[0])


def _horizontal(step: Known, position: int, part: NativePart) -> str:
    part.add(T.RandomHorizontalFlip(step.values["p"]), position)
    return ""


def _vertical(step: Known, position: int, part: NativePart) -> str:
    part.add(T.RandomVerticalFlip(step.values["p"]), position)
    return ""


_MAPPED: Mapping[str, Callable[[Known, int, NativePart], str | None]] = {
    "Identity": _nothing,
    "RGB": _nothing,
    "ToPureTensor": _nothing,
    "ToTensor": _to_tensor,
    "PILToTensor": _to_bytes,
    "ToImage": _to_bytes,
    "ToDtype": _to_dtype,
    "ConvertImageDtype": _to_dtype,
    "Normalize": _normalize,
    "Resize": _resize,
    "RandomResizedCrop": _resize,
    "ScaleJitter": _resize,
    "RandomShortestSize": _resize,
    "RandomResize": _resize,
    "ConvertBoundingBoxFormat": _box_format,
    "RandomZoomOut": _zoom_out,
    "RandomIoUCrop": _iou_crop,
    "SanitizeBoundingBoxes": _sanitize,
    "CenterCrop": _center_crop,
    "RandomCrop": _random_crop,
    "RandomHorizontalFlip": _horizontal,
    "RandomVerticalFlip": _vertical,
}
