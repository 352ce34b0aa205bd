"""Table of the library classes that the planner knows: torchvision's transforms, each as one of fastload's
and as an op on batches.

A row holds the public attributes of a class; it makes the native transform that gives the same pixels, or the
reason why none does at that place of a list, and the op of fastload.augment that does it on whole batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, SupportsFloat

from fastload import transforms as T
from fastload.errors import TransformError
from fastload.transforms.spec import ImageForm

_EXACT = (
    "decoded at full size, as torchvision's pixels need; fastload's {name} may shrink in the decoder "
    "(dct_scale)"
)
_BYTES = ("image", "uint8")
_ZERO = (0, 0.0, None, (0,), (0.0,), (0, 0, 0), (0.0, 0.0, 0.0))
_SCALES = ("min_scale", "max_scale", "min_aspect_ratio", "max_aspect_ratio")
_POLICY = ("interpolation", "fill")


@dataclass(frozen=True)
class Known:
    """A recognised transform.

    Attributes:
        name: its class.
        v2: True if it is of torchvision.transforms.v2.
        values: public attributes of the transform.
    """

    name: str
    v2: bool
    values: Mapping[str, Any]

    @property
    def row(self) -> LibraryClass:
        """Its class in the table."""
        return LIBRARY[self.name]


@dataclass(frozen=True)
class Place:
    """State of the images at one place of a list.

    Attributes:
        form: form of the images.
        is_tensor: True if "image" is a tensor for steps in Python, too, and never Pillow's.
        float_dtype: torch's default dtype, which ToTensor gives.
    """

    form: ImageForm
    is_tensor: bool
    float_dtype: str


@dataclass(frozen=True)
class NativeStep:
    """A library's step as the native part does it.

    Attributes:
        step: fastload's transform that does the same; None: nothing is to be done to pixels.
        note: remark for explain(); None: there is nothing to do.
        commutes: True if it may be done before what made floats.
        strict: True if an image that a resize leaves no row or column of is an error.
        values: attributes of the native part that it sets.
    """

    step: T.Transform | None = None
    note: str | None = ""
    commutes: bool = False
    strict: bool = False
    values: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class LibraryClass:
    """One class of torchvision's; the same in v1 and v2 but for AutoAugment's table.

    Attributes:
        attributes: its public attributes.
        native: makes the native step; raises TransformError with the reason where there is none. None: the
            decoder does not do it.
        batch: makes the arguments of the op of the same name in fastload.augment; raises TransformError where
            none does it on images of that form. None: no op does it.
    """

    attributes: tuple[str, ...]
    native: Callable[[Known, Place], NativeStep] | None = None
    batch: Callable[[Known, ImageForm], dict[str, Any]] | None = None


_NOTHING = NativeStep(note=None)


def _nothing(step: Known, at: Place) -> NativeStep:
    return _NOTHING


def _to_tensor(step: Known, at: Place) -> NativeStep:
    if at.form == "image":
        if at.float_dtype != "torch.float32":
            raise TransformError(
                f"it gives torch's default dtype, which is {at.float_dtype}, and natively bytes "
                "become float32"
            )
        return NativeStep(T.ToFloat())
    if step.v2:
        return _NOTHING
    raise TransformError("the image is a tensor already")


def _to_bytes(step: Known, at: Place) -> NativeStep:
    if at.form == "image":
        return NativeStep(note=None, values={"form": "uint8"})
    if step.v2:
        return _NOTHING
    raise TransformError("the image is a tensor already")


def _to_dtype(step: Known, at: Place) -> NativeStep:
    given, scale = step.values["dtype"], step.values.get("scale", True)
    if isinstance(given, Mapping):
        return _to_dtypes(given, scale, at)
    return _image_to_dtype(str(given), scale, at, step.v2)


def _to_dtypes(given: Mapping[Any, Any], scale: object, at: Place) -> NativeStep:
    """A dtype for each of tv_tensors' classes: of images as of ToDtype(dtype), of masks the last
    conversion, of others none."""
    names = _by_class(given)
    image, mask = names.pop("Image", None), names.pop("Mask", None)
    if any(value is not None for value in names.values()) or "others" not in names:
        raise TransformError(
            "natively images and masks are converted, and nothing else: give dtype={Image: ..., "
            "Mask: ..., 'others': None}"
        )
    made = _NOTHING if image is None else _image_to_dtype(str(image), scale, at, True)
    if mask is None:
        return made
    return NativeStep(made.step, values={**made.values, "mask_dtype": str(mask).removeprefix("torch.")})


def _by_class(given: Mapping[Any, Any]) -> dict[str, Any]:
    """Values for tv_tensors' classes and "others", by name."""
    return {key if isinstance(key, str) else key.__name__: value for key, value in given.items()}


def _image_to_dtype(dtype: str, scale: object, at: Place, v2: bool) -> NativeStep:
    if at.form == "image" and not at.is_tensor:
        if v2 and dtype.startswith("torch."):
            return _NOTHING  # v2 converts tensors only, and lets a Pillow image pass
        raise TransformError("the image is no tensor yet")
    is_bytes = at.form in _BYTES
    if dtype == ("torch.uint8" if is_bytes else "torch.float32"):
        return _NOTHING
    if not is_bytes or dtype != "torch.float32" or scale is not True:
        raise TransformError("natively bytes become float32 scaled to 0..1, and nothing else")
    return NativeStep(T.ToFloat(), values={"reciprocal": v2})


def _normalize(step: Known, at: Place) -> NativeStep:
    if at.form not in ("float", "normalized"):
        raise TransformError(
            "it takes floats: put ToTensor, or ToDtype(torch.float32, scale=True), before it"
        )
    return NativeStep(T.Normalize(_numbers(step.values["mean"]), _numbers(step.values["std"])))


def _numbers(values: Iterable[SupportsFloat]) -> tuple[float, ...]:
    try:
        return tuple(float(v) for v in values)
    except (TypeError, ValueError):
        raise TransformError("mean and std must be sequences of numbers") from None


def _resize(step: Known, at: Place) -> NativeStep:
    values = step.values
    _require_bytes(at, "resizes")
    antialias = True if at.form == "image" else values["antialias"]  # Pillow always does
    if not isinstance(antialias, bool):
        raise TransformError(f"antialias={antialias!r}")
    made = _RESIZES[step.name](
        values, {"interpolation": values["interpolation"], "antialias": antialias, "dct_scale": False}
    )
    return NativeStep(made, _EXACT.format(name=step.name), strict=step.name != "RandomResizedCrop")


_RESIZES: Mapping[str, Callable[[Mapping[str, Any], dict[str, Any]], T.Transform]] = {
    "Resize": lambda v, how: T.Resize(plain(v["size"]), max_size=v["max_size"], **how),
    "ScaleJitter": lambda v, how: T.ScaleJitter(v["target_size"], scale_range=v["scale_range"], **how),
    "RandomShortestSize": lambda v, how: T.RandomShortestSize(v["min_size"], max_size=v["max_size"], **how),
    "RandomResize": lambda v, how: T.RandomResize(v["min_size"], v["max_size"], **how),
    "RandomResizedCrop": lambda v, how: T.RandomResizedCrop(
        v["size"], scale=v["scale"], ratio=v["ratio"], **how
    ),
}


def _require_bytes(at: Place, does: str) -> None:
    if at.form not in _BYTES:
        raise TransformError(f"it {does} floats: put it before the conversion to floats")


def _zoom_out(step: Known, at: Place) -> NativeStep:
    _require_bytes(at, "pads")
    fill, mask_fill = _fills(step.values["fill"])
    return NativeStep(
        T.RandomZoomOut(
            fill, side_range=plain(step.values["side_range"]), p=step.values["p"], mask_fill=mask_fill
        )
    )


def _iou_crop(step: Known, at: Place) -> NativeStep:
    values = dict(step.values)
    _require_bytes(at, "crops")
    return NativeStep(T.RandomIoUCrop(sampler_options=values.pop("options"), **values))


def _sanitize(step: Known, at: Place) -> NativeStep:
    if (sizes := sanitized_by(step)) is None:
        raise TransformError(
            "its labels_getter is a function; fastload's SanitizeBoundingBoxes drops the rows of all "
            "fields of the boxes"
        )
    return NativeStep(
        T.SanitizeBoundingBoxes(*sizes), "drops the rows of all fields of the boxes", commutes=True
    )


def sanitized_by(step: Known) -> tuple[float, float] | None:
    """min_size and min_area of a SanitizeBoundingBoxes that is not told by a function of the user's what
    goes with the boxes; else None."""
    if step.name != "SanitizeBoundingBoxes" or step.values["labels_getter"] not in ("default", None):
        return None
    return step.values["min_size"], step.values["min_area"]


def _box_format(step: Known, at: Place) -> NativeStep:
    return NativeStep(T.ConvertBoundingBoxFormat(step.values["format"]))


def _center_crop(step: Known, at: Place) -> NativeStep:
    return NativeStep(T.CenterCrop(step.values["size"]), commutes=True)


def _random_crop(step: Known, at: Place) -> NativeStep:
    values = step.values
    if values["padding_mode"] != "constant":
        raise TransformError(f"padding_mode={values['padding_mode']!r}")
    if isinstance(values["fill"], tuple | list) and at.form != "image" and not step.v2:
        raise TransformError("a fill by channel, of a tensor")
    fill, mask_fill = _fills(values["fill"])
    padding = values["padding"]
    if step.v2 and padding is not None:
        left, right, top, bottom = padding  # its constructor's order is left, top, right, bottom
        padding = (left, top, right, bottom)
    pad_if_needed = bool(values["pad_if_needed"])
    crop = T.RandomCrop(
        values["size"], padding=padding, pad_if_needed=pad_if_needed, fill=fill, mask_fill=mask_fill
    )
    return NativeStep(crop, commutes=True)


def _fills(fill: object) -> tuple[int | tuple[int, ...], int]:
    """The fills of images and of masks: one for all, or a mapping of tv_tensors' classes and "others". One
    colour pads masks with 0."""
    if not isinstance(fill, Mapping):
        return _bytes(fill), _label(fill)
    names = _by_class(fill)
    return _bytes(names.get("Image", names.get("others", 0))), _label(
        names.get("Mask", names.get("others", 0))
    )


def _label(fill: object) -> int:
    fill = 0 if isinstance(fill, tuple | list) and len(fill) > 1 else _bytes(fill)
    return fill if isinstance(fill, int) else 0


def _bytes(fill: object) -> int | tuple[int, ...]:
    """A fill that is one whole number, or three."""
    values = fill if isinstance(fill, tuple | list) else (0 if fill is None else fill,)
    if len(values) not in (1, 3) or any(not isinstance(v, int | float) or v != int(v) for v in values):
        raise TransformError(f"fill={fill!r}")
    return tuple(int(v) for v in values) if len(values) == 3 else int(values[0])


def _horizontal(step: Known, at: Place) -> NativeStep:
    return NativeStep(T.RandomHorizontalFlip(step.values["p"]))


def _vertical(step: Known, at: Place) -> NativeStep:
    return NativeStep(T.RandomVerticalFlip(step.values["p"]))


def _colours(step: Known, form: ImageForm) -> dict[str, Any]:
    """Arguments as they are, for ops that act on bytes and on floats in 0..1."""
    _require(form != "normalized")
    return dict(step.values)


def _on_bytes(step: Known, form: ImageForm) -> dict[str, Any]:
    """Arguments as they are, for ops that torchvision does on bytes only, or in units of bytes."""
    _require(form in _BYTES)
    return dict(step.values)


def _jitter(step: Known, form: ImageForm) -> dict[str, Any]:
    return {name: 0.0 if value is None else value for name, value in _colours(step, form).items()}


def _erasing(step: Known, form: ImageForm) -> dict[str, Any]:
    values = dict(step.values)
    value = plain(values["value"])
    _require(form in ("uint8", "float", "normalized") and value is not None and not isinstance(value, str))
    if form == "uint8":
        scale = 1.0
    else:
        scale = 255.0
        _require(value in _ZERO or form == "float")
    values["value"] = tuple(v * scale for v in value) if isinstance(value, tuple) else value * scale
    if isinstance(values["value"], tuple) and len(values["value"]) == 1:
        values["value"] = values["value"][0]
    _require(_is_colour(values["value"]))
    del values["inplace"]
    return values


def _turned(step: Known, form: ImageForm) -> dict[str, Any]:
    """Rotation and affine maps about the centre, kept to the image's size."""
    values = dict(step.values)
    _require(values.pop("center") is None and not values.pop("expand", False))
    return _filled(values, form)


def _policy(step: Known, form: ImageForm) -> dict[str, Any]:
    values = _filled(_on_bytes(step, form), form)
    if step.name == "AutoAugment":
        values["policy"] = str(getattr(values["policy"], "value", values["policy"]))
        _require(values["policy"] == "imagenet")
    return values


def _filled(values: dict[str, Any], form: ImageForm) -> dict[str, Any]:
    fill, mode = plain(values["fill"]), values["interpolation"]
    _require(fill in _ZERO or (form in _BYTES and _is_colour(fill)))
    values["interpolation"] = str(getattr(mode, "value", mode))
    _require(values["interpolation"] in ("nearest", "bilinear"))
    values["fill"] = 0.0 if fill in _ZERO else fill
    return values


def _is_colour(fill: object) -> bool:
    """One value or three, in the units of bytes."""
    values = fill if isinstance(fill, tuple) else (fill,)
    return len(values) in (1, 3) and all(isinstance(v, int | float) and 0 <= v <= 255 for v in values)


def _require(holds: bool) -> None:
    if not holds:
        raise TransformError("no op on batches here")


def plain(value: object) -> Any:
    """Lists as tuples, all the way down: values that hash."""
    return tuple(plain(v) for v in value) if isinstance(value, list | tuple) else value


LIBRARY: Mapping[str, LibraryClass] = {
    "Identity": LibraryClass((), native=_nothing),
    "RGB": LibraryClass((), native=_nothing),
    "ToPureTensor": LibraryClass((), native=_nothing),
    "ToTensor": LibraryClass((), native=_to_tensor),
    "PILToTensor": LibraryClass((), native=_to_bytes),
    "ToImage": LibraryClass((), native=_to_bytes),
    "ToDtype": LibraryClass(("dtype", "scale"), native=_to_dtype),
    "ConvertImageDtype": LibraryClass(("dtype",), native=_to_dtype),
    "Normalize": LibraryClass(("mean", "std", "inplace"), native=_normalize),
    "Resize": LibraryClass(("size", "interpolation", "max_size", "antialias"), native=_resize),
    "RandomResizedCrop": LibraryClass(
        ("size", "scale", "ratio", "interpolation", "antialias"), native=_resize
    ),
    "CenterCrop": LibraryClass(("size",), native=_center_crop),
    "FiveCrop": LibraryClass(("size",)),
    "TenCrop": LibraryClass(("size", "vertical_flip")),
    "RandomCrop": LibraryClass(
        ("size", "padding", "pad_if_needed", "fill", "padding_mode"), native=_random_crop
    ),
    "RandomZoomOut": LibraryClass(("p", "fill", "side_range"), native=_zoom_out),
    "RandomIoUCrop": LibraryClass(
        ("min_scale", "max_scale", "min_aspect_ratio", "max_aspect_ratio", "options", "trials"),
        native=_iou_crop,
    ),
    "RandomResize": LibraryClass(("min_size", "max_size", "interpolation", "antialias"), native=_resize),
    "ConvertBoundingBoxFormat": LibraryClass(("format",), native=_box_format),
    "ScaleJitter": LibraryClass(("target_size", "scale_range", "interpolation", "antialias"), native=_resize),
    "RandomShortestSize": LibraryClass(
        ("min_size", "max_size", "interpolation", "antialias"), native=_resize
    ),
    "SanitizeBoundingBoxes": LibraryClass(("min_size", "min_area", "labels_getter"), native=_sanitize),
    "RandomHorizontalFlip": LibraryClass(("p",), native=_horizontal),
    "RandomVerticalFlip": LibraryClass(("p",), native=_vertical),
    "ColorJitter": LibraryClass(("brightness", "contrast", "saturation", "hue"), batch=_jitter),
    "RandomGrayscale": LibraryClass(("p",), batch=_colours),
    "GaussianBlur": LibraryClass(("kernel_size", "sigma"), batch=_colours),
    "RandomSolarize": LibraryClass(("threshold", "p"), batch=_on_bytes),
    "RandomPosterize": LibraryClass(("bits", "p"), batch=_on_bytes),
    "RandomEqualize": LibraryClass(("p",), batch=_on_bytes),
    "RandomAutocontrast": LibraryClass(("p",), batch=_colours),
    "RandomInvert": LibraryClass(("p",), batch=_colours),
    "RandomAdjustSharpness": LibraryClass(("sharpness_factor", "p"), batch=_colours),
    "RandomErasing": LibraryClass(("p", "scale", "ratio", "value", "inplace"), batch=_erasing),
    "RandomRotation": LibraryClass(("degrees", "interpolation", "expand", "fill", "center"), batch=_turned),
    "RandomAffine": LibraryClass(
        ("degrees", "translate", "scale", "shear", "interpolation", "fill", "center"), batch=_turned
    ),
    "RandAugment": LibraryClass(("num_ops", "magnitude", "num_magnitude_bins", *_POLICY), batch=_policy),
    "TrivialAugmentWide": LibraryClass(("num_magnitude_bins", *_POLICY), batch=_policy),
    "AutoAugment": LibraryClass(("policy", *_POLICY), batch=_policy),
}
"""The classes by name."""
