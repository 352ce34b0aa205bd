# Pillow's colour steps, blends and warps, bit for bit. Images are uint8, contiguous, (height, width, 3),
# (height, width, 1) or (height, width).

from fastload._native.c_colour cimport (
    FL_COLOUR_AUTOCONTRAST, fl_colour_band, fl_colour_blend, FL_COLOUR_BLEND, FL_COLOUR_BLUR, FL_COLOUR_BICUBIC, FL_COLOUR_BILINEAR, fl_colour_canvas,
    FL_COLOUR_CONTRAST, fl_colour_convolve, fl_colour_kernel, FL_COLOUR_KERNEL_MOST,
    FL_COLOUR_EQUALIZE,
    fl_colour_counts, fl_colour_filter, fl_colour_gaussian_radius, FL_COLOUR_GREY, FL_COLOUR_H,
    fl_colour_hsv, FL_COLOUR_HUE, fl_colour_light, fl_colour_map, FL_COLOUR_NEAREST, fl_colour_run, FL_COLOUR_S,
    FL_COLOUR_SATURATE, FL_COLOUR_SHARPEN, FL_COLOUR_SMOOTH, fl_colour_step, FL_COLOUR_TABLE, FL_COLOUR_V,
    fl_colour_warp,
)
from fastload._native.c_common cimport fl_buffer, fl_buffer_free, fl_view

from libc.math cimport isfinite
from libc.stdint cimport uint8_t, uint32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

_COLOUR_STEPS = {
    "blend": FL_COLOUR_BLEND,
    "saturate": FL_COLOUR_SATURATE,
    "grey": FL_COLOUR_GREY,
    "hue": FL_COLOUR_HUE,
    "table": FL_COLOUR_TABLE,
    "contrast": FL_COLOUR_CONTRAST,
    "autocontrast": FL_COLOUR_AUTOCONTRAST,
    "equalize": FL_COLOUR_EQUALIZE,
    "smooth": FL_COLOUR_SMOOTH,
    "sharpen": FL_COLOUR_SHARPEN,
    "blur": FL_COLOUR_BLUR,
}
_OF_COLOURS = frozenset(("saturate", "grey", "hue"))
_HSV_BANDS = {"H": FL_COLOUR_H, "S": FL_COLOUR_S, "V": FL_COLOUR_V}
_WARP_FILTERS = {"nearest": FL_COLOUR_NEAREST, "bilinear": FL_COLOUR_BILINEAR, "bicubic": FL_COLOUR_BICUBIC}


cdef object _colour_image(object image, fl_view *view, str what, bint colours):
    """Points a view at an image, and returns what must stay referenced."""
    image = _np.ascontiguousarray(image)
    _exact_view(image, view, what)
    if colours and view.channels:
        raise _errors.ArgumentError(f"{what}: needs an image of three channels, not {image.shape}")
    return image


cdef int _colour_step(fl_colour_step *step, object given, uint32_t channels) except -1:
    """Fills a step, whose table must stay referenced."""
    memset(step, 0, sizeof(fl_colour_step))
    name = given[0]
    step.kind = _choice(_COLOUR_STEPS, name, "colour step")
    if name in _OF_COLOURS and channels == 1:
        raise _errors.ArgumentError(f"colour: {name} needs an image of three channels")
    if name == "blend":
        step.level, step.factor = given[1], given[2]
    elif name in ("saturate", "contrast", "sharpen"):
        step.factor = given[1]
    elif name == "hue":
        step.level = given[1]
    elif name == "table":
        if type(given[1]) is not bytes or len(given[1]) != 256 * channels:
            raise _errors.ArgumentError(f"colour: a table is bytes, 256 for each of {channels} channels")
        step.tables = <const uint8_t *><const char *>given[1]
    if not isfinite(step.factor):
        raise _errors.ArgumentError(f"colour: the factor of {name} is {step.factor}")
    if name == "blur":
        step.x_radius, step.y_radius, step.passes = given[1], given[2], given[3]
        if not (0 <= step.x_radius < 1 << 15 and 0 <= step.y_radius < 1 << 15 and 0 < step.passes < 100):
            raise _errors.ArgumentError(f"colour: blur {given[1:]!r} is no radii and passes")
    return 0


def colour(image, steps):
    """Returns an image after colour steps, each as Pillow does it, bit for bit.

    Args:
        image: uint8 (height, width, 3), (height, width, 1) or (height, width); it stays as it is.
        steps: tuples. ("blend", level, factor): Image.blend from a constant; ("saturate", factor):
            ImageEnhance.Color; ("contrast", factor): ImageEnhance.Contrast; ("autocontrast",) and ("equalize",):
            ImageOps; ("grey",): convert("L") and back;
            ("hue", shift): shift added to H of mode HSV; ("table", bytes): Image.point, 256 bytes a channel;
            ("smooth",): ImageFilter.SMOOTH; ("sharpen", factor): ImageEnhance.Sharpness;
            ("blur", x, y, passes): so many box blurs of these radii. "saturate", "grey" and "hue" need three
            channels.

    Returns:
        a new array of the image's shape.

    Raises:
        ArgumentError: the image or a step is of another kind.
        ResourceError: there is no memory.
    """
    cdef fl_view view
    cdef fl_buffer room
    cdef fl_colour_step *plan
    cdef uint8_t *pixels
    cdef size_t count = len(steps), i
    cdef uint32_t channels
    cdef bint done
    cdef object out
    image = _colour_image(image, &view, "colour", False)
    out = _np.empty(image.shape, _np.uint8)
    channels = 1 if view.channels else 3
    pixels = <uint8_t *>_address(out)
    plan = <fl_colour_step *>malloc((count or 1) * sizeof(fl_colour_step))
    if plan == NULL:
        raise MemoryError
    memset(&room, 0, sizeof(room))
    try:
        for i in range(count):
            _colour_step(plan + i, steps[i], channels)
        with nogil:
            done = fl_colour_run(view.pixels, pixels, view.width, view.height, channels, plan, count, &room)
    finally:
        fl_buffer_free(&room)
        free(plan)
    if not done:
        raise _errors.ResourceError(f"no memory for a blur of {view.width} x {view.height} pixels")
    return out


def colour_blend(image, other, float factor):
    """Returns other + factor * (image - other), cut off at 0 and 255, as Image.blend(other, image, factor).

    Args:
        image, other: uint8 images of one shape.

    Raises:
        ArgumentError: the shapes differ.
    """
    cdef fl_view view
    cdef size_t count
    cdef uint8_t *pixels
    cdef const uint8_t *from_
    other = _colour_image(other, &view, "blend", False)
    from_ = view.pixels
    if _np.shape(image) != other.shape:
        raise _errors.ArgumentError(f"blend: images of shapes {_np.shape(image)} and {other.shape}")
    _exact_view(_np.asarray(image), &view, "blend")
    out = _np.array(image, order="C")
    count, pixels = out.size, <uint8_t *>_address(out)
    with nogil:
        fl_colour_blend(pixels, from_, count, factor)
    return out


def colour_convolve(image, weights):
    """Returns an image convolved with one kernel, as torchvision's gaussian_blur does it by torch's conv2d.

    Args:
        image: uint8 (height, width, 3), (height, width, 1) or (height, width); it stays as it is. Beyond its edges
            it is mirrored, without the edge itself.
        weights: float32 (rows, columns), odd, at most 255, and less than twice the image's sides; not negative,
            about 1 together.

    Returns:
        a new array of the image's shape.

    Raises:
        ArgumentError: the image or the weights are of another kind.
        ResourceError: there is no memory.
    """
    cdef fl_view view
    cdef fl_buffer room
    cdef fl_colour_kernel kernel
    cdef uint8_t *pixels
    cdef uint32_t channels
    cdef bint done
    image = _colour_image(image, &view, "convolve", False)
    weights = _np.ascontiguousarray(weights)
    if weights.dtype != _np.float32 or weights.ndim != 2 or not all(
        side % 2 and side <= FL_COLOUR_KERNEL_MOST and side // 2 < of
        for side, of in zip(weights.shape, image.shape)
    ) or not (weights.min() >= 0 and abs(float(weights.sum(dtype=_np.float64)) - 1) < 1e-3):
        raise _errors.ArgumentError(
            f"convolve: weights {weights.dtype} {weights.shape} for an image {image.shape}; a float32 kernel of "
            "odd sides, less than twice the image's, at least 0 and 1 together, is needed"
        )
    out = _np.empty(image.shape, _np.uint8)
    channels = 1 if view.channels else 3
    pixels = <uint8_t *>_address(out)
    kernel.height, kernel.width = weights.shape
    kernel.weights = <const float *>_address(weights)
    memset(&room, 0, sizeof(room))
    with nogil:
        done = fl_colour_convolve(view.pixels, pixels, view.width, view.height, channels, &kernel, &room)
        fl_buffer_free(&room)
    if not done:
        raise _errors.ResourceError(f"no memory to convolve {view.width} x {view.height} pixels")
    return out


def colour_band(image, band):
    """Returns the pixels (height, width) of one band of an image of three channels.

    Args:
        band: "L": its light, as convert("L"); "H", "S" or "V": that of convert("HSV").

    Raises:
        ArgumentError: the image is of another kind, or there is no such band.
    """
    cdef fl_view view
    cdef uint8_t *pixels
    cdef size_t count
    cdef int of_hsv = -1
    image = _colour_image(image, &view, "band", True)
    if band != "L":
        of_hsv = _choice(_HSV_BANDS, band, "band")
    out = _np.empty(image.shape[:2], _np.uint8)
    pixels, count = <uint8_t *>_address(out), out.size
    with nogil:
        if of_hsv < 0:
            fl_colour_light(view.pixels, count, pixels)
        else:
            fl_colour_hsv(view.pixels, count, <fl_colour_band>of_hsv, pixels)
    return out


def colour_counts(image):
    """Returns how many pixels have each value, uint32 (channels, 256).

    Raises:
        ArgumentError: the image is of another kind.
    """
    cdef fl_view view
    cdef uint32_t *counts
    cdef size_t channels, pixels
    image = _colour_image(image, &view, "counts", False)
    channels = 1 if view.channels else 3
    pixels = <size_t>view.width * view.height
    out = _np.empty((channels, 256), _np.uint32)
    counts = <uint32_t *>_address(out)
    with nogil:
        fl_colour_counts(view.pixels, pixels, channels, counts)
    return out


def colour_warp(image, out, object numbers, filter):
    """Writes the pixels of a warp that come from inside of an image, as Image.transform does.

    Args:
        image: uint8 (height, width, 3), (height, width, 1) or (height, width).
        out: the result, writable and contiguous, of as many dimensions and channels; pixels from outside of the
            image stay as they are.
        numbers: the six of Transform.AFFINE, or the eight of Transform.PERSPECTIVE.
        filter: "nearest", "bilinear" or "bicubic".

    Raises:
        ArgumentError: images, numbers or the filter do not fit.
    """
    cdef fl_view view, onto
    cdef fl_colour_map map
    cdef fl_colour_canvas canvas
    cdef fl_colour_filter chosen
    cdef uint32_t channels, i
    image = _colour_image(image, &view, "warp", False)
    _exact_view(out, &onto, "warp")
    chosen = _choice(_WARP_FILTERS, filter, "filter")
    if not out.flags.carray or out.shape[2:] != image.shape[2:] or len(numbers) not in (6, 8):
        raise _errors.ArgumentError(
            f"warp: {len(numbers)} numbers, {image.shape} onto {out.shape}; 6 or 8, and as many channels of a "
            "contiguous array, are needed"
        )
    if image.size >= 1 << 31:
        raise _errors.ArgumentError(f"warp: an image of {image.size} bytes; 2 GiB are too large")
    if _np.may_share_memory(image, out):
        raise _errors.ArgumentError("warp: the result must be other memory than the image")
    memset(&map, 0, sizeof(map))
    for i in range(len(numbers)):
        map.c[i] = numbers[i]
    map.perspective = len(numbers) == 8
    channels = 1 if view.channels else 3
    canvas.pixels, canvas.width, canvas.height = <uint8_t *>onto.pixels, onto.width, onto.height
    with nogil:
        fl_colour_warp(view.pixels, view.width, view.height, channels, &map, chosen, canvas)


def gaussian_radius(float radius, int passes=3):
    """Returns the radius of the box blurs of which `passes` make Pillow's Gaussian blur of a radius."""
    return fl_colour_gaussian_radius(radius, passes)
