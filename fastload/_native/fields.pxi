# Fields of a sample's record that go into its row, beside the image: the items of a source, and their rooms
# in a batch.

from fastload._native.c_common cimport fl_code, fl_error, FL_OK, fl_sink
from fastload._native.c_engine cimport (
    FL_BOXES_CXCYWH, FL_BOXES_CXCYWHR, FL_BOXES_XYWH, FL_BOXES_XYWHR, FL_BOXES_XYXY, FL_BOXES_XYXYXYXY,
    fl_fields_bytes, fl_fields_check,
    fl_item, FL_ITEM_BOXES, FL_ITEM_INSTANCES, FL_ITEM_KEYPOINTS, FL_ITEM_MASK, FL_ITEM_POLYGONS,
    FL_ITEM_ROWS, FL_ITEMS_MAX, FL_LAY_LIST,
    fl_place, fl_room, fl_rooms_compact, fl_rooms_narrow, fl_row, fl_source, fl_target, fl_target_lay,
)
from fastload._native.c_store cimport fl_store_count, fl_store_shards

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

import numpy as _np

_ITEM_KINDS = {
    "mask": FL_ITEM_MASK,
    "boxes": FL_ITEM_BOXES,
    "keypoints": FL_ITEM_KEYPOINTS,
    "instances": FL_ITEM_INSTANCES,
    "rows": FL_ITEM_ROWS,
    "polygons": FL_ITEM_POLYGONS,
}
_BOX_FORMATS = {
    "xyxy": FL_BOXES_XYXY,
    "xywh": FL_BOXES_XYWH,
    "cxcywh": FL_BOXES_CXCYWH,
    "xywhr": FL_BOXES_XYWHR,
    "cxcywhr": FL_BOXES_CXCYWHR,
    "xyxyxyxy": FL_BOXES_XYXYXYXY,
}
ITEMS_MOST = FL_ITEMS_MAX


cdef class _Items:
    """The items of a source: dicts with "kind", "name", "field", and by kind "counts", "unit", "format",
    "integer", "columns", "pairs", "of", "hidden".

    "field" is the number in records, or a uint16 array with that of each shard; "counts" is the int32 column
    of the rows of each sample, an array or JoinedTables; "pairs" is a sequence of two numbers of keypoints
    each, which flips exchange.

    Attributes:
        form: properties that the items of all sources of a batch must have in common.
    """

    cdef fl_item *item
    cdef uint32_t count
    cdef readonly tuple form
    cdef list borrowed

    def __cinit__(self, items, Store store not None):
        cdef fl_error err
        self.count, self.borrowed = <uint32_t>len(items), []
        if self.count > FL_ITEMS_MAX:
            raise _errors.ArgumentError(
                f"{self.count} fields beside the image: at most {FL_ITEMS_MAX} are made natively"
            )
        self.item = <fl_item *>calloc(max(1, self.count), sizeof(fl_item))
        if self.item is NULL:
            raise _errors.ResourceError("no memory for a dataset's fields")
        for i, item in enumerate(items):
            self._set(&self.item[i], item, store)
        check(fl_fields_check(self.item, self.count, &err), &err)
        self.form = tuple(tuple(item.get(key) for key in ("kind", "unit", "format", "integer", "columns",
                                                          "of", "hidden")) for item in items)

    cdef int _set(self, fl_item *out, dict item, Store store) except -1:
        cdef const uint16_t[::1] fields
        cdef const uint32_t[::1] pairs
        cdef bytes name = item["name"].encode()
        self.borrowed.append(name)
        out.name = name
        out.kind = _choice(_ITEM_KINDS, item["kind"], "kind")
        if isinstance(item["field"], int):
            out.field = item["field"]
        else:
            fields = item["field"]
            if <uint64_t>fields.shape[0] != fl_store_shards(store.ptr) or fields.shape[0] == 0:
                raise _errors.ArgumentError(
                    f"{fields.shape[0]} numbers of a field for {fl_store_shards(store.ptr)} shards"
                )
            out.fields = &fields[0]
            self.borrowed.append(fields)
        if item["kind"] != "mask":
            self._set_counts(out, item["counts"], store)
        out.unit = item["unit"]
        out.format = _BOX_FORMATS[item.get("format", "xyxy")]
        out.integer = item.get("integer", False)
        out.columns = item.get("columns", 0)
        if item.get("pairs", ()):
            pairs = _np.array(item["pairs"], _np.uint32).reshape(-1, 2).reshape(-1)
            out.pairs, out.pair_count = &pairs[0], <uint32_t>(pairs.shape[0] // 2)
            self.borrowed.append(pairs)
        out.of = item.get("of", -1)
        out.hidden = item.get("hidden", False)
        return 0

    cdef int _set_counts(self, fl_item *out, found, Store store) except -1:
        cdef const int32_t[::1] counts
        if len(found) != <Py_ssize_t>fl_store_count(store.ptr):
            raise _errors.ArgumentError(
                f"{len(found)} numbers of rows for {fl_store_count(store.ptr)} samples"
            )
        if isinstance(found, JoinedTables):
            if (<JoinedTables>found).width != sizeof(int32_t):
                raise _errors.ArgumentError(f"numbers of rows in tables of {found.width} bytes a row")
            out.counted = &(<JoinedTables>found).c
            self.borrowed.append(found)
            return 0
        counts = found
        if counts.shape[0]:
            out.counts = &counts[0]
        self.borrowed.append(counts)
        return 0

    def __dealloc__(self):
        free(self.item)


cdef class _Rooms:
    """Places of the items of a batch's rows: after each other, each on a cache line of its own.

    Attributes:
        bytes: bytes of all of them.
        own: for each item None, or the array in which it lies since a row outgrew its room in the slot.
    """

    cdef fl_room *room
    cdef fl_place *places
    cdef uint64_t *start
    cdef uint32_t *kept
    cdef size_t *at
    cdef uint32_t count, rows
    cdef size_t bytes
    cdef bint even
    cdef list own
    cdef _Items items

    def __cinit__(self, _Items items not None, uint32_t rows, bint even):
        cdef size_t count = items.count
        self.items, self.count, self.rows, self.even = items, items.count, rows, even
        self.own = [None] * self.count
        self.room = <fl_room *>calloc(max(1, count), sizeof(fl_room))
        self.places = <fl_place *>calloc(max(1, count * rows), sizeof(fl_place))
        self.start = <uint64_t *>calloc(max(1, count * (<size_t>rows + 1)), sizeof(uint64_t))
        self.kept = <uint32_t *>calloc(max(1, count * rows), sizeof(uint32_t))
        self.at = <size_t *>calloc(max(1, count), sizeof(size_t))
        if (
            self.room is NULL
            or self.places is NULL
            or self.start is NULL
            or self.kept is NULL
            or self.at is NULL
        ):
            raise _errors.ResourceError("no memory for a batch")
        for i in range(count):
            self.room[i].start, self.room[i].kept = &self.start[i * (<size_t>rows + 1)], &self.kept[i * rows]

    def __dealloc__(self):
        free(self.room)
        free(self.places)
        free(self.start)
        free(self.kept)
        free(self.at)

    cdef int _lay(self, const fl_source *const *sources, const fl_row *row, fl_error *errors,
                  const fl_target *image) except -1:
        """Sets where everything lies, for these rows, whose images have this target. What a row cannot
        have is an error of the row."""
        cdef size_t taken
        cdef uint32_t i, k
        for i in range(self.count):
            if self.items.item[i].hidden:
                continue
            taken = 0
            if self.items.item[i].kind in (FL_ITEM_MASK, FL_ITEM_INSTANCES):
                self._frame(i, image, &taken)
            if self.items.item[i].kind != FL_ITEM_MASK:
                for k in range(self.rows):
                    self.room[i].start[k + 1] = self._row_bytes(i, k, sources[row[k].source], row[k].index,
                                                                &errors[k])
                taken = self._sum(i)
            self.at[i] = self.bytes
            self.bytes += (taken + 63) & ~<size_t>63
            if self.bytes > <size_t>1 << 62:
                raise _errors.ArgumentError(f"a batch of {self.rows} rows takes too many bytes")
        return 0

    cdef int _frame(self, uint32_t i, const fl_target *image, size_t *taken) except -1:
        """Gives the item's masks the sizes and places of the images."""
        cdef fl_target *target = &self.room[i].target
        cdef fl_error err
        cdef uint32_t k
        target[0] = image[0]
        target.planes = 1
        target.unit = self.items.item[i].unit if self.items.item[i].kind == FL_ITEM_MASK else 1
        target.row_bytes = <size_t>image.sink.width * image.sink.height * target.unit
        taken[0] = target.row_bytes * self.rows
        if image.places is NULL:
            return 0
        target.places = &self.places[<size_t>i * self.rows]
        for k in range(self.rows):
            target.places[k] = image.places[k]
            target.places[k].at, target.places[k].bytes = target.row_bytes * k, target.row_bytes
        if not image.sink.pitch:
            check(fl_target_lay(target, self.rows, FL_LAY_LIST, 1, taken, &err), &err)
        return 0

    cdef uint64_t _row_bytes(self, uint32_t i, uint32_t k, const fl_source *source, uint64_t index,
                             fl_error *err) noexcept:
        """Bytes that a sample needs as row k; 0 where that is an error of the row."""
        cdef const fl_target *target = &self.room[i].target
        cdef uint64_t unit = self.items.item[i].unit, bytes = 0
        cdef fl_error found
        cdef fl_code code
        if self.items.item[i].kind == FL_ITEM_INSTANCES:
            unit = target.places[k].bytes if target.places is not NULL else target.row_bytes
        code = fl_fields_bytes(&source.items[i], source.store, index, unit, &bytes, &found)
        if code != FL_OK and err.code == FL_OK:
            err[0] = found
        return bytes

    cdef size_t _sum(self, uint32_t i) noexcept:
        """Makes running sums of the rows' bytes, of which start[k + 1] has row k's; returns all."""
        cdef uint64_t *start = self.room[i].start
        cdef uint64_t most = 0
        cdef bint even = self.even and self.items.item[i].kind != FL_ITEM_POLYGONS
        cdef uint32_t k
        for k in range(self.rows):
            most = max(most, start[k + 1])
        start[0] = 0
        for k in range(self.rows):
            start[k + 1] = start[k] + (most if even else start[k + 1])
        return start[self.rows]

    cdef list _alone(self, const fl_source *source, uint64_t index, const fl_target *image):
        """Lays the rooms of one sample, and gives each an array of its own. Returns the arrays; None where
        the item is hidden."""
        cdef fl_row row
        cdef fl_error err
        cdef uint8_t[::1] bytes
        cdef uint32_t i
        row.source, row.index, err.code = 0, index, FL_OK
        self._lay(&source, &row, &err, image)
        check(err.code, &err)
        made = []
        for i in range(self.count):
            if self.items.item[i].hidden:
                made.append(None)
                continue
            array = _np.empty(max(1, self._alone_bytes(i)), _np.uint8)
            bytes = array
            self.room[i].data = &bytes[0]
            self.room[i].target.sink.data = &bytes[0]
            made.append(array)
        return made

    cdef uint64_t _alone_bytes(self, uint32_t i) noexcept:
        """Bytes of the only row of an item."""
        cdef const fl_target *target = &self.room[i].target
        if self.items.item[i].kind != FL_ITEM_MASK:
            return self.room[i].start[1]
        return target.row_bytes if target.places is NULL else target.places[0].bytes

    cdef void _lie(self, void *data) noexcept:
        """The memory that they lie in, in front of `bytes` of theirs."""
        for i in range(self.count):
            self.room[i].data = <uint8_t *>data + self.at[i]
            self.room[i].target.sink.data = self.room[i].data

    cdef int _make_room(self, uint32_t k, const fl_source *source, uint64_t index, fl_error *err) except -1:
        """Makes room for another sample in row k: where it has more rows than the one before, the item
        moves to memory of its own."""
        cdef uint64_t bytes
        cdef uint32_t i
        for i in range(self.count):
            if self.items.item[i].hidden or self.items.item[i].kind == FL_ITEM_MASK:
                continue
            bytes = self._row_bytes(i, k, source, index, err)
            if bytes > self.room[i].start[k + 1] - self.room[i].start[k]:
                self._move(i, k, bytes)
        return 0

    cdef int _move(self, uint32_t i, uint32_t grown, uint64_t bytes) except -1:
        cdef fl_room *room = &self.room[i]
        cdef uint8_t[::1] fresh
        cdef uint64_t[::1] before = _np.empty(self.rows + 1, _np.uint64)
        cdef uint32_t k
        for k in range(self.rows + 1):
            before[k] = room.start[k]
        for k in range(self.rows):
            room.start[k + 1] = bytes if k == grown else before[k + 1] - before[k]
        made = _np.zeros(max(1, self._sum(i)), _np.uint8)
        fresh = made
        for k in range(self.rows):
            if k != grown:
                memcpy(&fresh[0] + room.start[k], room.data + before[k], before[k + 1] - before[k])
        self.own[i], room.data = made, &fresh[0]
        return 0

    cdef void _compact(self) noexcept nogil:
        """Closes the gaps of rows that were dropped."""
        cdef uint32_t i
        for i in range(self.count):
            if not self.items.item[i].hidden and self.items.item[i].kind != FL_ITEM_MASK:
                fl_rooms_compact(&self.items.item[i], &self.room[i], self.rows)

    cdef void _narrow(self, const fl_target *image) noexcept nogil:
        """Makes frames of masks as small as those of their images were made."""
        cdef uint32_t i
        for i in range(self.count):
            if not self.items.item[i].hidden:
                fl_rooms_narrow(&self.items.item[i], &self.room[i], self.rows, image)

    cdef list _described(self, size_t before):
        """For each item None if it is hidden, else (memory, starts, kept): the array that it lies in, None
        for the slot; int64 (rows + 1), the first byte of each row and the end; and uint32 (rows), number of
        rows of each that were kept, None for masks. `before`: the slot's bytes in front."""
        return [None if self.items.item[i].hidden else self._describe(i, before) for i in range(self.count)]

    cdef tuple _describe(self, uint32_t i, size_t before):
        cdef const fl_room *room = &self.room[i]
        cdef bint mask = self.items.item[i].kind == FL_ITEM_MASK
        starts, kept = _np.empty(self.rows + 1, _np.int64), _np.empty(self.rows, _np.uint32)
        cdef int64_t[::1] s = starts
        cdef uint32_t[::1] n = kept
        cdef int64_t first = <int64_t>(before + self.at[i] if self.own[i] is None else 0)
        cdef uint32_t k
        for k in range(self.rows):
            if mask:
                if room.target.places is not NULL:
                    s[k] = first + <int64_t>room.target.places[k].at
                else:
                    s[k] = first + <int64_t>(room.target.row_bytes * k)
            else:
                s[k], n[k] = first + <int64_t>room.start[k], room.kept[k]
        s[self.rows] = first + <int64_t>(room.target.row_bytes * self.rows if mask else room.start[self.rows])
        return self.own[i], starts, None if mask else kept
