# Objects of a sample beside its image, moved by the geometry drawn for it: boxes, points, masks.

from fastload._native.c_common cimport fl_error
from fastload._native.c_engine cimport (
    fl_boxes, fl_boxes_columns, fl_geometry, fl_geometry_resolve, fl_objects_exchange, fl_objects_mask,
    fl_objects_points, FL_POINTS_KEYPOINTS, FL_POINTS_OUTLINE, fl_points_kind,
    FL_STEP_CROP, FL_STEP_FORMAT, FL_STEP_HFLIP, FL_STEP_IOU_CROP, FL_STEP_PAD, FL_STEP_RESIZE,
    FL_STEP_SANITIZE, FL_STEP_VFLIP,
)

from libc.stdint cimport int32_t, uint8_t, uint32_t

_STEP_NAMES = {
    FL_STEP_CROP: "crop",
    FL_STEP_PAD: "pad",
    FL_STEP_RESIZE: "resize",
    FL_STEP_HFLIP: "hflip",
    FL_STEP_VFLIP: "vflip",
    FL_STEP_IOU_CROP: "iou_crop",
    FL_STEP_SANITIZE: "sanitize",
    FL_STEP_FORMAT: "format",
}


cdef class Geometry:
    """The geometry that a program draws for one sample, and what it makes of the sample's boxes, points and
    masks.

    Args:
        program: the transforms.
        size: (width, height) of the sample's image.
        seed, epoch, index: the sample's key.
        boxes: float32 or int64 (count, 4, 5 or 8 by the format), not changed; None for a sample without
            boxes.
        format: format of the boxes given: "xyxy", "xywh", "cxcywh", "xywhr", "cxcywhr" or "xyxyxyxy".

    Raises:
        ArgumentError: the boxes do not fit their format, a crop does not fit the image, or RandomIoUCrop has
            no boxes.
        SampleError: the list has no native meaning for the sample.
    """

    cdef fl_geometry geometry
    cdef readonly object boxes
    cdef readonly object keep

    def __init__(self, Program program not None, size, seed, epoch, index, boxes=None, format="xyxy"):
        cdef fl_boxes given
        cdef fl_boxes *pointer = NULL
        cdef uint32_t numbers[2]
        cdef fl_error err
        _unsigned(size, numbers, 2, "size")
        if boxes is not None:
            self._take(&given, boxes, format)
            pointer = &given
        check(fl_geometry_resolve(&program.program, numbers[0], numbers[1], _key(seed, epoch, index), pointer,
                                  &self.geometry, &err), &err)

    cdef int _take(self, fl_boxes *out, boxes, format) except -1:
        """Copies the boxes, which the resolve then changes in place."""
        boxes = _np.asarray(boxes)
        out.format = _choice(_BOX_FORMATS, format, "format")
        columns = fl_boxes_columns(out.format)
        if boxes.ndim != 2 or boxes.shape[1] != columns or boxes.dtype not in (_np.float32, _np.int64):
            raise _errors.ArgumentError(
                f"boxes of {format!r} are float32 or int64 (count, {columns}), not {boxes.dtype} "
                f"{boxes.shape}"
            )
        self.boxes = boxes.copy(order="C")
        kept = _np.ones(len(boxes), _np.uint8)
        self.keep = kept.view(_np.bool_)
        out.integer = boxes.dtype == _np.int64
        out.count = <uint32_t>len(boxes)
        out.values = <void *>_address(self.boxes)
        out.keep = <uint8_t *>_address(kept)
        return 0

    @property
    def size(self):
        """(width, height) of the result."""
        return self.geometry.window.width, self.geometry.window.height

    @property
    def mask_fill(self):
        """Label that masks show beyond their source."""
        return self.geometry.mask_fill

    @property
    def steps(self):
        """The steps, as dicts: kind, size (width, height) after it, and x and y of "crop", "iou_crop" and
        "pad"."""
        return [
            {
                "kind": _STEP_NAMES[<int>self.geometry.steps[i].kind],
                "size": (self.geometry.steps[i].width, self.geometry.steps[i].height),
                "x": self.geometry.steps[i].x,
                "y": self.geometry.steps[i].y,
            }
            for i in range(self.geometry.step_count)
        ]

    @property
    def exchanged(self):
        """True if an odd number of the flips that were drawn exchange keypoints."""
        return self.geometry.exchanged

    def keypoints(self, points):
        """Keypoints (..., 2) or (..., 3: with COCO's visibility) through the steps, as a new float32 array.
        Nothing is clamped; points of visibility 0 stay as they are."""
        return self._points(FL_POINTS_KEYPOINTS, points)

    def outline(self, points):
        """Corners of areas (..., 2), as those of polygons, through the steps, as a new float32 array: they
        move as a box's do, unclamped."""
        return self._points(FL_POINTS_OUTLINE, points)

    cdef object _points(self, fl_points_kind kind, points):
        cdef float[::1] values
        made = _np.array(points, _np.float32, order="C")
        if made.ndim < 1 or made.shape[made.ndim - 1] not in (2, 3):
            raise _errors.ArgumentError(f"points are (..., 2) or (..., 3), not {made.shape}")
        cdef uint32_t columns = made.shape[made.ndim - 1]
        if made.size:
            values = made.reshape(-1)
            with nogil:
                fl_objects_points(&self.geometry, kind, &values[0], <size_t>values.shape[0] / columns,
                                  columns)
        return made

    def mask_tables(self):
        """(columns, rows) as int32 arrays: which of the source's columns and rows each of the result
        shows, -1 for none."""
        width, height = self.size
        columns, rows = _np.empty(width, _np.int32), _np.empty(height, _np.int32)
        cdef int32_t[::1] x = columns
        cdef int32_t[::1] y = rows
        with nogil:
            fl_objects_mask(&self.geometry, &x[0], &y[0])
        return columns, rows

    def mask(self, labels):
        """A label map (height, width), as large as the sample's image, through the steps: sampled nearest,
        mask_fill beyond it."""
        columns, rows = self.mask_tables()
        shown = labels[rows[:, None], columns[None, :]]
        shown[(rows < 0)[:, None] | (columns < 0)[None, :]] = self.mask_fill
        return shown
