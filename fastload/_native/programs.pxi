# Work of native threads: transform programs, sources, and one sample at a time.

from fastload._native.c_common cimport fl_code, fl_error, FL_IMAGE_SIDE_MAX, fl_key, fl_view
from fastload._native.c_engine cimport (
    fl_geometry, fl_geometry_resolve, fl_geometry_size, fl_op, FL_OP_AFFINE, FL_OP_AUTO_AUGMENT,
    FL_OP_AUTOCONTRAST, FL_OP_CENTER_CROP, FL_OP_CORNER_CROP, FL_OP_EQUALIZE, FL_OP_ERASE, FL_OP_FORMAT,
    FL_OP_GAUSSIAN_BLUR, FL_OP_GREY, FL_OP_HFLIP, FL_OP_INVERT, FL_OP_IOU_CROP, FL_OP_JITTER,
    FL_OP_LETTERBOX, FL_OP_PATCH_GRID, FL_OP_PERSPECTIVE, FL_OP_POSTERIZE, FL_OP_RAND_AUGMENT, FL_OP_RANDOM_CROP, FL_OP_RANDOM_RESIZE,
    FL_OP_RESIZE, FL_OP_RESIZED_CROP, FL_OP_ROTATE, FL_OP_SANITIZE, FL_OP_SCALE_JITTER, FL_OP_SHARPNESS,
    FL_OP_SHORTEST_SIZE, FL_OP_SOLARIZE, FL_OP_TRIVIAL_AUGMENT, FL_OP_VFLIP,
    FL_OP_ZOOM_OUT, FL_OPS_MAX, FL_OPTIONS_MAX, fl_part, FL_PARTS_MAX, fl_pipeline_pixels, fl_pipeline_row, fl_program, fl_room,
    fl_source, fl_worker,
    fl_worker_create, fl_worker_free,
)
from fastload._native.c_store cimport fl_store_shards

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset
from posix.unistd cimport getpid as _getpid
from cpython.buffer cimport PyBuffer_FillInfo
from cpython.exc cimport PyErr_CheckSignals

import threading as _threading

cimport cython as _cython

import numpy as _np

# C integers, not a dict: objects may end after the module's own globals are gone
cdef long _live_engines = 0, _live_batches = 0, _live_leases = 0, _live_decoders = 0

_OP_KINDS = {
    "resized_crop": FL_OP_RESIZED_CROP,
    "resize": FL_OP_RESIZE,
    "center_crop": FL_OP_CENTER_CROP,
    "corner_crop": FL_OP_CORNER_CROP,
    "random_crop": FL_OP_RANDOM_CROP,
    "hflip": FL_OP_HFLIP,
    "vflip": FL_OP_VFLIP,
    "zoom_out": FL_OP_ZOOM_OUT,
    "scale_jitter": FL_OP_SCALE_JITTER,
    "shortest_size": FL_OP_SHORTEST_SIZE,
    "iou_crop": FL_OP_IOU_CROP,
    "sanitize": FL_OP_SANITIZE,
    "letterbox": FL_OP_LETTERBOX,
    "random_resize": FL_OP_RANDOM_RESIZE,
    "format": FL_OP_FORMAT,
    "jitter": FL_OP_JITTER,
    "grey": FL_OP_GREY,
    "solarize": FL_OP_SOLARIZE,
    "posterize": FL_OP_POSTERIZE,
    "invert": FL_OP_INVERT,
    "equalize": FL_OP_EQUALIZE,
    "autocontrast": FL_OP_AUTOCONTRAST,
    "sharpness": FL_OP_SHARPNESS,
    "gaussian_blur": FL_OP_GAUSSIAN_BLUR,
    "rotate": FL_OP_ROTATE,
    "affine": FL_OP_AFFINE,
    "perspective": FL_OP_PERSPECTIVE,
    "rand_augment": FL_OP_RAND_AUGMENT,
    "trivial_augment": FL_OP_TRIVIAL_AUGMENT,
    "auto_augment": FL_OP_AUTO_AUGMENT,
    "erase": FL_OP_ERASE,
    "patch_grid": FL_OP_PATCH_GRID,
}


cdef void _add(long *counter, long by) noexcept:
    counter[0] += by


cdef class Program:
    """A transform list, compiled: a sequence of dicts with "kind" and the parameters of fl_op."""

    cdef fl_program program

    def __init__(self, ops):
        if len(ops) > FL_OPS_MAX:
            raise _errors.TransformError(
                f"{len(ops)} transforms in one list: at most {FL_OPS_MAX} run natively"
            )
        memset(&self.program, 0, sizeof(fl_program))
        for i, op in enumerate(ops):
            self._set(&self.program.ops[i], op)
        self.program.count = len(ops)

    cdef int _set(self, fl_op *out, dict op) except -1:
        out.kind = _OP_KINDS[op["kind"]]
        out.stream = op.get("stream", 0)
        out.width = op.get("width", 0)
        out.height = op.get("height", 0)
        out.max_size = op.get("max_size", 0)
        out.p = op.get("p", 0.0)
        scale = op.get("scale", (0.0, 0.0))
        ratio = op.get("ratio", (0.0, 0.0))
        padding = op.get("padding", (0, 0, 0, 0))
        fill = op.get("fill", (0, 0, 0))
        for i in range(2):
            out.scale[i] = scale[i]
            out.ratio[i] = ratio[i]
        for i in range(4):
            out.padding[i] = padding[i]
        for i in range(3):
            out.fill[i] = fill[i]
        options = op.get("options", ())
        if len(options) > FL_OPTIONS_MAX:
            raise _errors.TransformError(
                f"{len(options)} sizes or options of one transform: at most {FL_OPTIONS_MAX} run natively"
            )
        for i, option in enumerate(options):
            out.options[i] = option
        out.option_count = len(options)
        out.trials = op.get("trials", 0)
        out.min_size = op.get("min_size", 0.0)
        out.min_area = op.get("min_area", 0.0)
        out.box_format = _BOX_FORMATS[op.get("box_format", "xyxy")]
        out.mask_fill = op.get("mask_fill", 0)
        out.pad_if_needed = op.get("pad_if_needed", False)
        out.right = op.get("right", False)
        out.bottom = op.get("bottom", False)
        out.floors = op.get("floors", False)
        out.exchange = op.get("exchange", False)
        out.late = op.get("late", False)
        out.filter = _FILTERS[op.get("filter", "bilinear")]
        out.antialias = op.get("antialias", True)
        out.dct_scale = op.get("dct_scale", True)
        out.strict = op.get("strict", False)
        out.warp = _WARP_FILTERS[op.get("warp", "nearest")]
        policy = op.get("policy")
        if policy is not None:
            scales = policy.scales
            out.policy.count, out.policy.bin, out.policy.bins = policy.count, policy.bin, policy.bins
            out.policy.shear, out.policy.translate = scales.shear, scales.translate
            out.policy.rotate, out.policy.blend = scales.rotate, scales.blend
            out.policy.posterize, out.policy.shares = scales.posterize, scales.translate_share
        values = op.get("values", ())
        out.floats = len(values) > 0
        for i in range(3 if out.floats else 0):
            out.values[i] = values[i]
        return 0

    def size(self, uint32_t width, uint32_t height, seed=0, epoch=0, index=0):
        """(width, height) of what the program makes of a width x height image; the key counts only where the
        size is drawn. Where it depends on boxes, the largest that each can be."""
        cdef uint32_t w, h
        cdef fl_error err
        check(fl_geometry_size(&self.program, width, height, _key(seed, epoch, index), &w, &h, &err), &err)
        return w, h

    def resolve(self, uint32_t width, uint32_t height, seed, epoch, index):
        """The geometry drawn for one sample, as a dict: box, size, window, visible (x, y, width, height),
        hflip, vflip."""
        cdef fl_geometry g
        cdef fl_error err
        check(fl_geometry_resolve(&self.program, width, height, _key(seed, epoch, index), NULL, &g, &err),
              &err)
        return {
            "box": (g.box.x, g.box.y, g.box.width, g.box.height),
            "size": (g.width, g.height),
            "window": (g.window.x, g.window.y, g.window.width, g.window.height),
            "visible": (g.visible.x, g.visible.y, g.visible.width, g.visible.height),
            "hflip": bool(g.hflip),
            "vflip": bool(g.vflip),
        }


@_cython.no_gc_clear
cdef class Source:
    """One dataset as the engine sees it: its open store or its files, the parts that are made of its images,
    the pixel limit.

    Args:
        data: the Store, or the Files.
        programs: a Program for each part of the image, at least one.
        image_field: the image's number in records.
        max_pixels: images of more are refused.
        further: (name, number, programs) of each further image of a record: a number of records, or a uint16
            array with that of each shard. Their parts come after those of the image.
        items: the other values of each record that go into its row: see _Items.

    Of files, every image that is no whole and sound JPEG fails: what becomes of it is decided by who knows
    how its dataset opens it.
    """

    cdef fl_source source
    cdef fl_part *own
    cdef _Items items
    cdef readonly object data
    cdef list borrowed

    def __init__(self, data not None, list programs not None, uint16_t image_field, uint64_t max_pixels,
                 further=(), items=()):
        count = len(programs) + sum(len(own) for _, _, own in further)
        if not 0 < len(programs) <= FL_PARTS_MAX:
            raise _errors.TransformError(
                f"{len(programs)} views of one image: 1 to {FL_PARTS_MAX} are made natively"
            )
        if count > FL_PARTS_MAX:
            raise _errors.TransformError(
                f"{count} images and views of one sample: at most {FL_PARTS_MAX} are made natively"
            )
        free(self.own)
        self.borrowed = []
        self.source.parts = self.own = <fl_part *>calloc(count, sizeof(fl_part))
        if self.own is NULL:
            raise _errors.ResourceError("no memory for a dataset's transforms")
        for i, program in enumerate(programs):
            self.own[i].field, self.own[i].program = image_field, (<Program?>program).program
        self.source.count = <uint32_t>len(programs)
        for i, image in enumerate(further):
            self._add(i, image, data)
        if isinstance(data, Files):
            self.source.files = (<Files>data).ptr
        else:
            self.source.store = (<Store?>data).ptr
            self.items = _Items.__new__(_Items, items, data)
            self.source.items, self.source.item_count = self.items.item, self.items.count
        self.data = data
        self.source.max_pixels = max_pixels

    cdef int _add(self, uint16_t place, image, Store store) except -1:
        """Adds the parts of a further image. `place` tells it from others where its number depends on the
        shard."""
        cdef const uint16_t[::1] numbers
        cdef const uint16_t *by_shard = NULL
        cdef bytes name = image[0].encode()
        cdef const char *text = name
        cdef fl_part *part
        self.borrowed.append(name)
        if not isinstance(image[1], int):
            numbers = image[1]
            if <uint64_t>numbers.shape[0] != fl_store_shards(store.ptr) or not numbers.shape[0]:
                raise _errors.ArgumentError(
                    f"{numbers.shape[0]} numbers of a field for {fl_store_shards(store.ptr)} shards"
                )
            by_shard = &numbers[0]
            self.borrowed.append(numbers)
        for program in image[2]:
            part = &self.own[self.source.count]
            part.field = 0xFFFF - place if by_shard is not NULL else <uint16_t>image[1]
            part.fields, part.name, part.program = by_shard, text, (<Program?>program).program
            self.source.count += 1
        return 0

    @property
    def max_pixels(self):
        """Images of more pixels are refused."""
        return self.source.max_pixels

    @property
    def has_items(self):
        """True if more of a record than its image goes into a row."""
        return self.source.item_count > 0

    def __dealloc__(self):
        free(self.own)


cdef int _rgb_view(const uint8_t[:, :, ::1] pixels, fl_view *view) except -1:
    """A view of a whole image, RGB, (height, width, 3)."""
    if (
        pixels.shape[2] != 3
        or not 0 < pixels.shape[0] <= FL_IMAGE_SIDE_MAX
        or not 0 < pixels.shape[1] <= FL_IMAGE_SIDE_MAX
    ):
        raise _errors.ArgumentError(
            f"an image of {pixels.shape[0]} x {pixels.shape[1]} x {pixels.shape[2]} values is no RGB image"
        )
    memset(view, 0, sizeof(fl_view))
    view.pixels = &pixels[0, 0, 0]
    view.height, view.width = pixels.shape[0], pixels.shape[1]
    view.stride, view.tail = <size_t>pixels.shape[1] * 3, 0
    return 0


@_cython.no_gc_clear
cdef class Decoder:
    """Makes single samples in the calling thread: what dataset[i] runs on. Any thread may call; one at a time
    runs.

    1. Sources handed in stay referenced, so that their stores outlive the readers kept here.
    2. Not for use after a fork: make a new one (check `pid`).
    """

    cdef fl_worker *worker
    cdef readonly int pid
    cdef dict _sources
    cdef object _lock
    cdef _Traces traces

    def __cinit__(self):
        cdef fl_error err
        self.pid = _getpid()
        self._sources = {}
        self._lock = _threading.Lock()
        check(fl_worker_create(&self.worker, &err), &err)
        _add(&_live_decoders, 1)
        self.traces = _Traces.__new__(_Traces, 1)
        self.traces._join(self.worker)

    def __dealloc__(self):
        if self.worker is not NULL:
            if self.traces is not None:
                self.traces._end()
            if self.pid == _getpid():
                fl_worker_free(self.worker)
            _add(&_live_decoders, -1)

    def decode(self, Source source, index, seed, epoch, list outputs, list into, sizes,
               const uint8_t[::1] record=None,
               list found=None, const uint8_t[:, :, ::1] pixels=None, drawn_as=None):
        """Makes the parts of sample index, each into the buffer of bytes `into[i]`, sizes[i] = (width,
        height) pixels of outputs[i]'s type.

        Args:
            record: its record, where the shard's file lacks it.
            found: gets (width, height) of each part, where `sizes` are the largest that are possible; None:
                they are what is made.
            pixels: its image as it was decoded elsewhere, as `Batch.redo_with` takes it; of a source without
                items; None: it is decoded here.
            drawn_as: index of its draws; None: its own.

        Returns:
            For each of the source's items None if it is hidden, else (bytes, number of rows that were kept):
            a uint8 array.

        Raises:
            SampleError: with the bare reason.
        """
        cdef fl_error err
        cdef fl_code code
        cdef fl_key key = _key(seed, epoch, index if drawn_as is None else drawn_as)
        cdef uint64_t place = <uint64_t>int(index)
        cdef _Targets targets
        cdef uint8_t[::1] buffer
        if found is None:
            targets = _Targets.__new__(_Targets, 1, sizes, outputs)
        else:
            targets = _Targets.__new__(_Targets, 1, _np.array(sizes, _np.uint32)[:, None], outputs, "list", 1,
                                       True)
        if self.pid != _getpid():
            raise _errors.ClosedError("this decoder belongs to another process")
        if not len(into) == <Py_ssize_t>targets.count == <Py_ssize_t>source.source.count:
            raise _errors.ArgumentError(
                f"{len(into)} buffers and {targets.count} sizes for {source.source.count} parts"
            )
        for i, buffer in enumerate(into):
            if <size_t>buffer.shape[0] < targets._row_bytes(i) or buffer.shape[0] == 0:
                raise _errors.ArgumentError("the buffer is too small for the image")
            targets.target[i].sink.data = &buffer[0]
        cdef fl_span given
        cdef fl_view view
        cdef bint decoded = pixels is not None
        if decoded:
            _rgb_view(pixels, &view)
            if source.source.item_count:
                raise _errors.ArgumentError("pixels are given for an image with fields beside it")
        given.bytes, given.size = NULL, 0
        if record is not None and record.shape[0]:
            given.bytes, given.size = &record[0], record.shape[0]
        cdef _Rooms rooms = None
        cdef fl_room *room = NULL
        cdef list made = []
        if source.source.item_count:
            rooms = _Rooms.__new__(_Rooms, source.items, 1, False)
            made, room = rooms._alone(&source.source, place, targets.target), rooms.room
        with self._lock:
            self._sources[id(source)] = source
            with nogil:
                code = (fl_pipeline_pixels(self.worker, &source.source, place, key, &view, targets.target, 0, &err)
                        if decoded else
                        fl_pipeline_row(self.worker, &source.source, place, key, given, targets.target, room, 0,
                                        &err))
        check(code, &err)
        if found is not None:
            found.extend((targets.places[i].width, targets.places[i].height) for i in range(targets.count))
        return [None if each is None else (each, rooms.room[i].kept[0]) for i, each in enumerate(made)]
