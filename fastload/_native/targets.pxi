# Parts of a batch: their form, and their places in its slot.

from fastload._native.c_common cimport fl_dtype, fl_error, fl_layout, fl_patches, FL_PATCHES, fl_sink
from fastload._native.c_engine cimport (
    fl_lay, FL_LAY_EQUAL, FL_LAY_FLAT, FL_LAY_LIST, FL_LAY_PADDED, FL_PARTS_MAX, fl_place, fl_target,
    fl_target_lay, fl_target_tighten,
)

from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free

import numpy as _np


cdef class Output:
    """Form of a part of a batch.

    Args:
        dtype: "uint8" ("uint16" of planes of 2 bytes), "float32", "float16" or "bfloat16".
        layout: "HWC" or "CHW".
        lut: for float dtypes, the value of each byte value in each channel: 3 x 256 values of dtype; for
            planes channels x 256 or 65536.
        planes: (channels, bytes of a value) of an image that is not 8-bit RGB; None: it is.
        patches: (side, merge, frames) of an image that is cut into patches, in place of a layout of lines;
            csrc/common/image.h has them. None: it is not.

    Attributes:
        layout: "HWC", "CHW" or "patches".
        patches: as it was given.
        channels: number of channels of the image.
    """

    cdef readonly str dtype
    cdef readonly str layout
    cdef readonly int itemsize
    cdef readonly int channels
    cdef uint8_t plane_channels, depth
    cdef fl_dtype dtype_code
    cdef fl_layout layout_code
    cdef readonly object patches
    cdef fl_patches patch_form
    cdef object lut
    cdef const uint8_t[::1] lut_bytes

    def __init__(self, dtype="uint8", layout="HWC", lut=None, planes=None, patches=None):
        self.dtype, self.layout = dtype, layout if patches is None else "patches"
        self.patches = patches
        self.plane_channels, self.depth = (0, 0) if planes is None else planes
        if planes is not None and not (1 <= self.plane_channels <= 4 and 1 <= self.depth <= 2):
            raise _errors.ArgumentError(f"planes of {self.plane_channels} channels of {self.depth} bytes")
        self.channels = self.plane_channels or 3
        self.dtype_code, kind = _choice(_DTYPES, dtype, "dtype")
        self.itemsize = _np.dtype(kind).itemsize
        self.layout_code = _choice(_LAYOUTS, layout, "layout")
        if patches is not None:
            self.layout_code = FL_PATCHES
            self.patch_form.side, self.patch_form.merge, self.patch_form.frames = patches
        floats, own = dtype not in ("uint8", "uint16"), "uint16" if self.depth == 2 else "uint8"
        if not floats and dtype != own:
            raise _errors.ArgumentError(
                f"dtype {dtype!r} is not that of the image, {own!r}, and no float type"
            )
        if (lut is None) == floats:
            raise _errors.ArgumentError(f"a float batch needs a table of values, a {own} batch none")
        values = self.channels * (65536 if self.depth == 2 else 256)
        if lut is not None:
            self.lut = _np.ascontiguousarray(lut).reshape(-1).view(_np.uint8)
            if self.lut.size != values * self.itemsize:
                raise _errors.ArgumentError(f"a table of {self.lut.size} bytes, expected {values} values")
            self.lut_bytes = self.lut

    cdef void _sink(self, fl_sink *sink, void *data, uint32_t width, uint32_t height) noexcept:
        sink.data = data
        sink.width, sink.height = width, height
        sink.dtype, sink.layout = self.dtype_code, self.layout_code
        sink.lut = <const void *>&self.lut_bytes[0] if self.lut is not None else NULL
        sink.hflip = sink.vflip = False
        sink.pitch, sink.plane = 0, 0
        sink.channels, sink.depth = self.plane_channels, self.depth
        sink.patches = self.patch_form


_LAYS = {"equal": FL_LAY_EQUAL, "list": FL_LAY_LIST, "padded": FL_LAY_PADDED, "flat": FL_LAY_FLAT}


cdef class _Targets:
    """The parts of a batch, one after the other in its slot, each on a cache line of its own. See NOTE [
    target: images of different sizes ].

    Args:
        rows: number of rows of the batch.
        sizes: "equal": (width, height) of each part. Else uint32 (parts, rows, 2): that of each row.
        outputs: the Output of each part.
        layout: "equal", "list", "padded" or "flat".
        pad_to: for "padded", the number of which the sides of its frames are multiples.
        bounded: True if the sizes are upper bounds, and each row's own is known when it is made; not for
            "equal".
    """

    cdef fl_target *target
    cdef fl_place *places
    cdef size_t *at
    cdef uint32_t count
    cdef size_t rows
    cdef size_t bytes
    cdef uint32_t pad_to
    cdef list outputs

    def __cinit__(self, size_t rows, sizes, list outputs, str layout="equal", uint32_t pad_to=1,
                  bint bounded=False):
        cdef fl_lay lay = _choice(_LAYS, layout, "layout")
        self.count, self.rows, self.outputs, self.pad_to = <uint32_t>len(outputs), rows, outputs, pad_to
        if not 0 < len(sizes) == len(outputs) <= FL_PARTS_MAX:
            raise _errors.ArgumentError(
                f"{len(sizes)} sizes for {len(outputs)} parts of a batch: as many, 1 to {FL_PARTS_MAX}"
            )
        self.target = <fl_target *>calloc(self.count, sizeof(fl_target))
        self.at = <size_t *>calloc(self.count, sizeof(size_t))
        if lay != FL_LAY_EQUAL:
            self.places = <fl_place *>calloc(max(1, self.count * rows), sizeof(fl_place))
        if self.target is NULL or self.at is NULL or (lay != FL_LAY_EQUAL and self.places is NULL):
            raise _errors.ResourceError("no memory for a batch")
        if lay != FL_LAY_EQUAL:
            self._place(sizes)
        for i in range(self.count):
            self.target[i].bounded = bounded and lay != FL_LAY_EQUAL
            self._lay(i, (0, 0) if lay != FL_LAY_EQUAL else sizes[i], lay, pad_to)
        self.bytes = max(self.bytes, <size_t>64)  # a slot has memory, also where no row can be made

    cdef int _place(self, const uint32_t[:, :, ::1] sizes) except -1:
        """Gives each row of each part a place of its size."""
        cdef size_t row
        cdef uint32_t i
        if <size_t>sizes.shape[1] != self.rows or sizes.shape[2] != 2:
            raise _errors.ArgumentError(f"sizes of {sizes.shape[1]} rows for a batch of {self.rows}")
        for i in range(self.count):
            self.target[i].places = &self.places[i * self.rows]
            for row in range(self.rows):
                self.target[i].places[row].width = sizes[i, row, 0]
                self.target[i].places[row].height = sizes[i, row, 1]
        return 0

    cdef int _lay(self, int i, size, fl_lay lay, uint32_t pad_to) except -1:
        """Sets where part i and its rows lie."""
        cdef Output output = self.outputs[i]
        cdef fl_target *target = &self.target[i]
        cdef size_t taken
        cdef fl_error err
        width, height = size
        output._sink(&target.sink, NULL, width, height)
        target.planes = output.channels if target.sink.layout == FL_CHW else 1
        target.unit = <uint32_t>(output.itemsize * output.channels) // target.planes
        if target.sink.layout == FL_PATCHES:
            target.unit *= target.sink.patches.frames
        if self.rows > 0xFFFFFFFF:
            raise _errors.ArgumentError(f"a batch of {self.rows} rows")
        check(fl_target_lay(target, <uint32_t>max(1, self.rows), lay, pad_to, &taken, &err), &err)
        self.at[i] = self.bytes
        self.bytes += (taken + 63) & ~<size_t>63
        if self.bytes > <size_t>1 << 62:
            raise _errors.ArgumentError(f"a batch of {self.rows} images of {width} x {height} pixels")
        return 0

    def __dealloc__(self):
        free(self.target)
        free(self.places)
        free(self.at)

    cdef void _lie(self, void *data) noexcept:
        """The memory that they lie in."""
        for i in range(self.count):
            self.target[i].sink.data = <uint8_t *>data + self.at[i]

    cdef size_t _row_bytes(self, int i) noexcept:
        """Bytes of the only row of part i."""
        return self.target[i].row_bytes if self.places is NULL else self.target[i].places[0].bytes

    cdef void _tighten(self) noexcept nogil:
        """Makes the frames of rows that are made as small as they can be."""
        cdef uint32_t i
        for i in range(self.count):
            fl_target_tighten(&self.target[i], <uint32_t>self.rows, self.pad_to)

    cdef object _placed(self, int i):
        """Start, width and height of each of part i's rows, as an int64 array (rows, 3); None if all are
        alike."""
        cdef int64_t[:, ::1] out
        cdef size_t row
        if self.places is NULL:
            return None
        made = _np.empty((self.rows, 3), _np.int64)
        out = made
        for row in range(self.rows):
            out[row, 0] = self.at[i] + self.target[i].places[row].at
            out[row, 1], out[row, 2] = self.target[i].places[row].width, self.target[i].places[row].height
        return made


def batch_bytes(size_t rows, sizes, list outputs, str layout="equal", uint32_t pad_to=1):
    """Bytes of a batch's slot. Arguments: as Batch takes them."""
    cdef _Targets targets = _Targets.__new__(_Targets, rows, sizes, outputs, layout, pad_to)
    return targets.bytes
