"""Table of the library classes that the planner knows: torchvision's transforms, each as one of fastload's
and as an op on batches.

A row holds the public attributes of a class; it makes the native transform that gives the same pixels, or the
reason why none does at that place of a list, and the op of fastload.augment that does it on whole batches.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, SupportsFloat

import numpy as np

from fastload import transforms as T
from fastload.errors import TransformError
from fastload.transforms.ops import Augmentation, Erasing, Policy
from fastload.transforms.policies import AUTOAUGMENT_BINS, NARROW, OPS, WIDE, policy_pairs
from fastload.transforms.spec import ImageForm

_EXACT = (
    "decoded at full size, as torchvision's pixels need; fastload's {name} may shrink in the decoder "
    "(dct_scale)"
)
_ROUNDED = "Pillow's pixels, which torchvision rounds otherwise in tensors"
_BLURRED = "pixels are within 1 of torchvision's"
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
        unaugmented: reason why finished images are not changed natively; "" if they are.
        unwarped: reason why their pixels are not moved natively; "" if they are.
    """

    form: ImageForm
    is_tensor: bool
    float_dtype: str
    unaugmented: str = ""
    unwarped: str = ""


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
        has_chance: True if both take a probability `p`, whether or not the class has one: RandomApply of one
            such step is the step with it.
    """

    attributes: tuple[str, ...]
    native: Callable[[Known, Place], NativeStep] | None = None
    batch: Callable[[Known, ImageForm], dict[str, Any]] | None = None
    has_chance: bool = False


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


_Numbers = Callable[[Mapping[str, Any]], tuple[float, ...]]


def _no_numbers(values: Mapping[str, Any]) -> tuple[float, ...]:
    return ()


def _augmentation(
    kind: str, options: _Numbers = _no_numbers, note: str = ""
) -> Callable[[Known, Place], NativeStep]:
    """Makes the native step of a class that changes colours; `options`: its numbers, by its attributes;
    `note`: remark where pixels are not Pillow's."""
    return lambda step, at: _augmented(
        at, Augmentation(kind, _floats(options(step.values)), step.values.get("p", 1.0)), note
    )


def _warp(
    kind: str, options: _Numbers = _no_numbers, policy: Callable[[Mapping[str, Any]], Policy] | None = None
) -> Callable[[Known, Place], NativeStep]:
    """Makes the native step of a class that may move pixels."""

    def native(step: Known, at: Place) -> NativeStep:
        values = step.values
        if at.unwarped:
            raise TransformError(at.unwarped)
        if values.get("center") is not None or values.get("expand"):
            raise TransformError("natively images turn about their centre, and keep their size")
        mode = str(getattr(values["interpolation"], "value", values["interpolation"]))
        if mode not in ("nearest", "bilinear", "bicubic"):
            raise TransformError(f"interpolation={mode!r}")
        fill, chosen = _fills(values["fill"])[0], None if policy is None else policy(values)
        return _augmented(
            at, Augmentation(kind, _floats(options(values)), values.get("p", 1.0), mode, fill, chosen)
        )

    return native


def _augmented(at: Place, step: Augmentation, note: str = "") -> NativeStep:
    _require_bytes(at, "changes")
    if at.unaugmented:
        raise TransformError(at.unaugmented)
    return NativeStep(step, note or (_ROUNDED if at.form == "uint8" or at.is_tensor else ""))


def _erase(step: Known, at: Place) -> NativeStep:
    values = step.values
    if at.form == "image" and not at.is_tensor:
        raise TransformError("natively it erases tensors: put ToTensor, PILToTensor or ToImage before it")
    if at.unaugmented:
        raise TransformError(at.unaugmented)
    ranges = _floats((*_range(values, "scale", 0, 1), *_range(values, "ratio", 1 / _LARGEST, _LARGEST)))
    written = _written(values["value"])
    if at.form not in _BYTES:
        return NativeStep(Erasing(options=ranges, p=values["p"], values=written))
    fill = tuple(int(np.float32(each)) for each in written)  # torch truncates
    if not all(0 <= each <= 255 for each in fill):
        raise TransformError(f"value={values['value']!r}, in bytes")
    return NativeStep(Erasing(options=ranges, p=values["p"], fill=fill))


def _written(value: object) -> tuple[float, ...]:
    """The values of three channels that RandomErasing writes."""
    if value is None or value == "random":
        raise TransformError("value='random': natively it fills with one colour")
    given = value if isinstance(value, tuple | list) else (value,)
    if len(given) not in (1, 3) or not all(
        isinstance(each, int | float) and abs(each) <= _LARGEST for each in given
    ):
        raise TransformError(f"value={value!r}")
    return _floats(given) * (3 // len(given))


def _floats(numbers: Iterable[float]) -> tuple[float, ...]:
    return tuple(float(each) for each in numbers)


def _number(values: Mapping[str, Any], name: str, low: float, high: float) -> float:
    value = values[name]
    if not isinstance(value, int | float) or not low <= value <= high:
        raise TransformError(f"{name}={value!r}")
    return value


def _range(values: Mapping[str, Any], name: str, low: float, high: float) -> tuple[float, float]:
    value = values[name]
    if (
        not isinstance(value, tuple | list)
        or len(value) != 2
        or not all(isinstance(each, int | float) for each in value)
        or not low <= value[0] <= value[1] <= high
    ):
        raise TransformError(f"{name}={value!r}")
    return value[0], value[1]


def _jitter_ranges(values: Mapping[str, Any]) -> tuple[float, ...]:
    ranges = [
        (1.0, 1.0) if values[name] is None else _range(values, name, 0, _LARGEST)
        for name in ("brightness", "contrast", "saturation")
    ]
    hue = (0.0, 0.0) if values["hue"] is None else _range(values, "hue", -0.5, 0.5)
    return tuple(limit for each in (*ranges, hue) for limit in each)


def _blur(values: Mapping[str, Any]) -> tuple[float, ...]:
    sides = values["kernel_size"]
    if (
        not isinstance(sides, tuple | list)
        or len(sides) != 2
        or not all(isinstance(side, int) and 0 < side < _WEIGHTS and side % 2 for side in sides)
    ):
        raise TransformError(f"kernel_size={sides!r}")
    return (*sides, *_range(values, "sigma", math.ulp(0.0), _LARGEST))


def _turns(values: Mapping[str, Any]) -> tuple[float, ...]:
    return _range(values, "degrees", -_LARGEST, _LARGEST)


def _affine(values: Mapping[str, Any]) -> tuple[float, ...]:
    """Ranges of an affine map, where those that torchvision leaves out change nothing."""
    given = {"translate": (0.0, 0.0), "scale": (1.0, 1.0), "shear": (0.0, 0.0)}
    given |= {name: values[name] for name in given if values[name] is not None}
    shear = tuple(given["shear"])
    across, down = {"shear": shear[:2]}, {"shear": shear[2:] or (0.0, 0.0)}
    shares = given["translate"]
    if len(shares) != 2 or not all(0 <= each <= 1 for each in shares):
        raise TransformError(f"translate={shares!r}")
    return (
        *_turns(values),
        *shares,
        *_range(given, "scale", 1e-6, _LARGEST),
        *_range(across, "shear", -_LARGEST, _LARGEST),
        *_range(down, "shear", -_LARGEST, _LARGEST),
    )


def _rand_augment(values: Mapping[str, Any]) -> Policy:
    bins = _whole(values, "num_magnitude_bins", 2, _BINS)
    return Policy(
        NARROW, bins, _whole(values, "num_ops", 0, _OPS_MOST), _whole(values, "magnitude", 0, bins - 1)
    )


def _trivial_augment(values: Mapping[str, Any]) -> Policy:
    return Policy(WIDE, _whole(values, "num_magnitude_bins", 2, _BINS))


def _auto_augment(values: Mapping[str, Any]) -> Policy:
    return Policy(NARROW, AUTOAUGMENT_BINS)


def _pairs(values: Mapping[str, Any]) -> tuple[float, ...]:
    """The pairs of ops of AutoAugment's policy, packed as csrc/engine/augment.c unpacks them."""
    policy = str(getattr(values["policy"], "value", values["policy"]))
    if policy != "imagenet":
        raise TransformError(f"policy={policy!r}; natively it is that of ImageNet")
    ops = [
        [OPS.index(op.kind) | round(10 * op.p) << 4 | op.bin << 8 for op in pair]
        for pair in policy_pairs(policy)
    ]
    return tuple(first | second << 12 for first, second in ops)


def _whole(values: Mapping[str, Any], name: str, low: int, high: int) -> int:
    if not isinstance(values[name], int):
        raise TransformError(f"{name}={values[name]!r}")
    return int(_number(values, name, low, high))


def _bits(values: Mapping[str, Any]) -> tuple[float, ...]:
    return (_whole(values, "bits", 1, 8),)


_LARGEST = 1e6
"""Limit on factors and sigmas: products with values of a byte stay far inside of a float's range."""
_WEIGHTS = 1 << 15
"""Limit on the weights of a blur."""
_BINS, _OPS_MOST = 1 << 16, 1 << 10
"""Limits on the bins and the ops of a policy."""


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
    "ColorJitter": LibraryClass(
        ("brightness", "contrast", "saturation", "hue"),
        native=_augmentation("jitter", _jitter_ranges),
        batch=_jitter,
        has_chance=True,
    ),
    "RandomGrayscale": LibraryClass(("p",), native=_augmentation("grey"), batch=_colours, has_chance=True),
    "GaussianBlur": LibraryClass(
        ("kernel_size", "sigma"),
        native=_augmentation("gaussian_blur", _blur, _BLURRED),
        batch=_colours,
        has_chance=True,
    ),
    "RandomSolarize": LibraryClass(
        ("threshold", "p"),
        native=_augmentation("solarize", lambda v: (_number(v, "threshold", -_LARGEST, _LARGEST),)),
        batch=_on_bytes,
        has_chance=True,
    ),
    "RandomPosterize": LibraryClass(
        ("bits", "p"), native=_augmentation("posterize", _bits), batch=_on_bytes, has_chance=True
    ),
    "RandomEqualize": LibraryClass(
        ("p",), native=_augmentation("equalize"), batch=_on_bytes, has_chance=True
    ),
    "RandomAutocontrast": LibraryClass(
        ("p",), native=_augmentation("autocontrast"), batch=_colours, has_chance=True
    ),
    "RandomInvert": LibraryClass(("p",), native=_augmentation("invert"), batch=_colours, has_chance=True),
    "RandomAdjustSharpness": LibraryClass(
        ("sharpness_factor", "p"),
        native=_augmentation("sharpness", lambda v: (_number(v, "sharpness_factor", -_LARGEST, _LARGEST),)),
        batch=_colours,
        has_chance=True,
    ),
    "RandomErasing": LibraryClass(
        ("p", "scale", "ratio", "value", "inplace"), native=_erase, batch=_erasing, has_chance=True
    ),
    "RandomRotation": LibraryClass(
        ("degrees", "interpolation", "expand", "fill", "center"),
        native=_warp("rotate", _turns),
        batch=_turned,
        has_chance=True,
    ),
    "RandomAffine": LibraryClass(
        ("degrees", "translate", "scale", "shear", "interpolation", "fill", "center"),
        native=_warp("affine", _affine),
        batch=_turned,
        has_chance=True,
    ),
    "RandomPerspective": LibraryClass(
        ("distortion_scale", "p", "interpolation", "fill"),
        native=_warp("perspective", lambda v: (_number(v, "distortion_scale", 0, 1),)),
    ),
    "RandAugment": LibraryClass(
        ("num_ops", "magnitude", "num_magnitude_bins", *_POLICY),
        native=_warp("rand_augment", policy=_rand_augment),
        batch=_policy,
    ),
    "TrivialAugmentWide": LibraryClass(
        ("num_magnitude_bins", *_POLICY),
        native=_warp("trivial_augment", policy=_trivial_augment),
        batch=_policy,
    ),
    "AutoAugment": LibraryClass(
        ("policy", *_POLICY), native=_warp("auto_augment", _pairs, _auto_augment), batch=_policy
    ),
}
"""The classes by name."""
