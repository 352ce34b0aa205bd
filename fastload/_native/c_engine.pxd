# Transform programs, the ring of slots, threads, the pipeline, shared memory. Declarations of csrc/engine.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from fastload._native.c_common cimport (
    fl_box, fl_buffer, fl_code, fl_error, fl_key, fl_sink, fl_span, fl_view,
)
from fastload._native.c_store cimport fl_files, fl_store, fl_tables

cdef extern from "engine/decoders.h" nogil:
    ctypedef struct fl_image_form:
        uint32_t width, height
        uint8_t channels, depth
    ctypedef struct fl_stored:
        int kind
        fl_span data, index
        bint sound
    ctypedef struct fl_decoder:
        int kind
        const char *name
        fl_code (*create)(void **, fl_error *) noexcept nogil
        void (*free)(void *) noexcept nogil
        fl_code (*open)(void *, const fl_stored *, uint64_t max_pixels, fl_image_form *,
                        fl_error *) noexcept nogil
        fl_code (*decode)(void *, fl_box *, int eighths, fl_view *, fl_error *) noexcept nogil
    int fl_decoder_find(int kind)
    int fl_decoder_sniff(fl_span data)
    const fl_decoder *fl_decoder_at(int)

cdef extern from "engine/step.h" nogil:
    ctypedef enum fl_step_kind:
        FL_STEP_CROP
        FL_STEP_PAD
        FL_STEP_RESIZE
        FL_STEP_HFLIP
        FL_STEP_VFLIP
        FL_STEP_IOU_CROP
        FL_STEP_SANITIZE
        FL_STEP_FORMAT
    ctypedef struct fl_step:
        fl_step_kind kind
        int64_t in_width, in_height, width, height, x, y
        double min_size, min_area
        int box_format

cdef extern from "engine/boxes.h" nogil:
    ctypedef enum fl_box_format:
        FL_BOXES_XYXY
        FL_BOXES_XYWH
        FL_BOXES_CXCYWH
        FL_BOXES_XYWHR
        FL_BOXES_CXCYWHR
        FL_BOXES_XYXYXYXY
    ctypedef struct fl_boxes:
        fl_box_format format
        bint integer
        uint32_t count
        void *values
        uint8_t *keep
    uint32_t fl_boxes_columns(fl_box_format)

cdef extern from "engine/geometry.h" nogil:
    ctypedef enum fl_op_kind:
        FL_OP_RESIZED_CROP
        FL_OP_RESIZE
        FL_OP_CENTER_CROP
        FL_OP_CORNER_CROP
        FL_OP_RANDOM_CROP
        FL_OP_HFLIP
        FL_OP_VFLIP
        FL_OP_ZOOM_OUT
        FL_OP_SCALE_JITTER
        FL_OP_SHORTEST_SIZE
        FL_OP_IOU_CROP
        FL_OP_SANITIZE
        FL_OP_LETTERBOX
        FL_OP_RANDOM_RESIZE
        FL_OP_FORMAT
        FL_OP_JITTER
        FL_OP_GREY
        FL_OP_SOLARIZE
        FL_OP_POSTERIZE
        FL_OP_INVERT
        FL_OP_EQUALIZE
        FL_OP_AUTOCONTRAST
        FL_OP_SHARPNESS
        FL_OP_GAUSSIAN_BLUR
        FL_OP_ROTATE
        FL_OP_AFFINE
        FL_OP_PERSPECTIVE
        FL_OP_RAND_AUGMENT
        FL_OP_TRIVIAL_AUGMENT
        FL_OP_AUTO_AUGMENT
        FL_OP_ERASE
        FL_OP_PATCH_GRID
    ctypedef struct fl_policy:
        uint32_t count, bin, bins
        double shear, translate, rotate, blend, posterize
        bint shares
    ctypedef struct fl_op:
        fl_op_kind kind
        uint16_t stream
        uint32_t width, height, max_size
        double scale[2]
        double ratio[2]
        double p
        uint32_t padding[4]
        bint pad_if_needed, right, bottom, floors, exchange, late
        uint8_t fill[3]
        uint16_t mask_fill
        int filter
        bint antialias, dct_scale, strict
        uint32_t option_count, trials
        double options[32]
        double min_size, min_area
        fl_box_format box_format
        int warp
        fl_policy policy
        bint floats
        float values[3]
    ctypedef struct fl_program:
        uint32_t count
        fl_op ops[16]
    ctypedef struct fl_rect:
        int64_t x, y, width, height
    ctypedef struct fl_geometry:
        fl_box box
        fl_rect canvas
        uint32_t width, height
        bint resized, padded
        fl_rect window, visible
        uint8_t canvas_fill[3]
        uint8_t fill[3]
        uint16_t mask_fill
        bint hflip, vflip, exchanged
        uint32_t step_count
        fl_step steps[32]
    int FL_OPS_MAX, FL_OPTIONS_MAX
    fl_code fl_geometry_resolve(const fl_program *, uint32_t, uint32_t, fl_key, fl_boxes *, fl_geometry *,
                                fl_error *)
    fl_code fl_geometry_size(const fl_program *, uint32_t, uint32_t, fl_key, uint32_t *, uint32_t *,
                             fl_error *)

cdef extern from "engine/objects.h" nogil:
    ctypedef enum fl_points_kind:
        FL_POINTS_KEYPOINTS
        FL_POINTS_OUTLINE
    void fl_objects_points(const fl_geometry *, fl_points_kind, float *, size_t, uint32_t)
    void fl_objects_exchange(float *, size_t, uint32_t, uint32_t, const uint32_t *, uint32_t)
    void fl_objects_mask(const fl_geometry *, int32_t *, int32_t *)

cdef extern from "engine/ring.h" nogil:
    ctypedef struct fl_ring:
        pass
    ctypedef struct fl_slot:
        pass
    ctypedef struct fl_stop:
        uint32_t set
    ctypedef struct fl_ring_counts:
        uint32_t slots, free, filling, ready, leased
        uint64_t bytes
    int FL_SLOT_READY
    fl_code fl_ring_create(uint32_t, size_t, fl_ring **, fl_error *)
    void fl_ring_free(fl_ring *)
    fl_code fl_ring_take(fl_ring *, size_t, fl_slot **, fl_error *)
    fl_code fl_ring_lend(fl_ring *, void *, size_t, fl_slot **, fl_error *)
    void fl_slot_lease(fl_slot *)
    void fl_slot_release(fl_ring *, fl_slot *)
    void *fl_slot_data(const fl_slot *)
    int fl_slot_state_of(const fl_slot *)
    fl_code fl_ring_wait(fl_ring *, fl_slot **, uint32_t, int64_t, const fl_stop *, uint32_t *, fl_error *)
    void fl_ring_stop(fl_ring *, fl_stop *)
    void fl_ring_count(fl_ring *, fl_ring_counts *)

cdef extern from "engine/shm.h" nogil:
    ctypedef struct fl_shm:
        void *data
        size_t bytes
        int fd
    fl_code fl_shm_create(size_t, fl_shm *, fl_error *)
    fl_code fl_shm_attach(int, fl_shm *, fl_error *)
    fl_code fl_shm_attach_sparse(int, fl_shm *, fl_error *)
    void fl_shm_release_fd(fl_shm *)
    void fl_shm_close(fl_shm *)
    void fl_ticket_open(const fl_shm *, uint32_t, uint32_t)
    int64_t fl_ticket_claim(const fl_shm *, uint32_t, uint32_t, uint32_t)
    uint64_t fl_shm_forks()
    void fl_shm_offer(const fl_shm *)
    bint fl_shm_offered(const fl_shm *)
    bint fl_shm_accept(const fl_shm *)

cdef extern from "engine/shm_indexes.h" nogil:
    enum:
        FL_SHM_INDEXES_EACH
    ctypedef struct fl_shm_indexes_counts:
        uint64_t indexes, bytes, found
        bint full
    fl_code fl_shm_indexes_create(size_t, fl_shm *, fl_error *)
    fl_code fl_shm_indexes_attach(int, fl_shm *, fl_error *)
    uint64_t fl_shm_indexes_key(const uint8_t *, size_t)
    bint fl_shm_indexes_find(const fl_shm *, uint64_t, fl_buffer *, fl_span *)
    bint fl_shm_indexes_keep(const fl_shm *, uint64_t, fl_span)
    uint64_t fl_shm_indexes_slots(const fl_shm *)
    bint fl_shm_indexes_at(const fl_shm *, uint64_t, uint64_t *, fl_buffer *, fl_span *)
    void fl_shm_indexes_count(const fl_shm *, fl_shm_indexes_counts *)

cdef extern from "engine/pool.h" nogil:
    ctypedef struct fl_pool:
        pass
    ctypedef void (*fl_work)(void *, uint32_t, void *) noexcept nogil
    fl_code fl_pool_create(const char *, uint32_t, uint32_t, void **, fl_pool **, fl_error *)
    fl_code fl_pool_submit(fl_pool *, fl_work, void *, uint32_t, fl_error *)
    void fl_pool_cancel(fl_pool *, const void *)
    void fl_pool_close(fl_pool *)
    void fl_pool_free(fl_pool *)

cdef extern from "engine/target.h" nogil:
    ctypedef enum fl_lay:
        FL_LAY_EQUAL
        FL_LAY_LIST
        FL_LAY_PADDED
        FL_LAY_FLAT
    ctypedef struct fl_place:
        size_t at, bytes
        uint32_t width, height
    ctypedef struct fl_target:
        fl_sink sink
        size_t row_bytes
        uint32_t unit, planes
        bint bounded
        fl_place *places
    fl_code fl_target_lay(fl_target *, uint32_t, fl_lay, uint32_t, size_t *, fl_error *)
    void fl_target_tighten(fl_target *, uint32_t, uint32_t)

cdef extern from "engine/render.h" nogil:
    ctypedef struct fl_part:
        uint16_t field
        const uint16_t *fields
        const char *name
        fl_program program
    int FL_PARTS_MAX

cdef extern from "engine/fields.h" nogil:
    ctypedef enum fl_item_kind:
        FL_ITEM_MASK
        FL_ITEM_BOXES
        FL_ITEM_KEYPOINTS
        FL_ITEM_INSTANCES
        FL_ITEM_ROWS
        FL_ITEM_POLYGONS
    ctypedef struct fl_item:
        fl_item_kind kind
        const char *name
        uint16_t field
        const uint16_t *fields
        const int32_t *counts
        const fl_tables *counted
        uint32_t unit
        fl_box_format format
        bint integer
        uint32_t columns
        const uint32_t *pairs
        uint32_t pair_count
        int32_t of
        bint hidden
    ctypedef struct fl_room:
        fl_target target
        uint8_t *data
        uint64_t *start
        uint32_t *kept
    int FL_ITEMS_MAX, FL_ITEM_ALONE
    fl_code fl_fields_check(const fl_item *, uint32_t, fl_error *)
    fl_code fl_fields_bytes(const fl_item *, const fl_store *, uint64_t, uint64_t, uint64_t *, fl_error *)

cdef extern from "engine/rooms.h" nogil:
    void fl_rooms_compact(const fl_item *, const fl_room *, uint32_t)
    void fl_rooms_narrow(const fl_item *, fl_room *, uint32_t, const fl_target *)

cdef extern from "engine/trace.h" nogil:
    ctypedef struct fl_trace_event:
        int64_t start_ns
    ctypedef struct fl_trace:
        pass
    fl_code fl_trace_create(uint32_t, fl_trace **, fl_error *)
    void fl_trace_free(fl_trace *)
    size_t fl_trace_waiting(fl_trace *)
    size_t fl_trace_drain(fl_trace *, fl_trace_event *, size_t)
    uint64_t fl_trace_dropped(fl_trace *)

cdef extern from "engine/pipeline.h" nogil:
    ctypedef struct fl_source:
        fl_store *store
        fl_files *files
        const fl_part *parts
        uint32_t count
        const fl_item *items
        uint32_t item_count
        uint64_t max_pixels
    ctypedef struct fl_counters:
        uint64_t samples, failed, warnings, fallbacks, bytes, read_ns, decode_ns, resize_ns
    ctypedef struct fl_worker:
        pass
    ctypedef struct fl_row:
        uint32_t source
        uint64_t index
        uint64_t seed
        uint64_t drawn_as
        fl_span given
        uint64_t stamp
    ctypedef struct fl_batch:
        fl_ring *ring
        fl_slot *slot
        const fl_source **sources
        uint32_t rows, parts, items
        fl_row *row
        fl_error *errors
        fl_target *target
        fl_room *room
        uint32_t epoch
        uint32_t left, failed
    fl_code fl_worker_create(fl_worker **, fl_error *)
    void fl_worker_free(fl_worker *)
    const fl_counters *fl_worker_counters(const fl_worker *)
    void fl_worker_trace(fl_worker *, fl_trace *)
    fl_code fl_pipeline_row(
        fl_worker *, const fl_source *, uint64_t, fl_key, fl_span, const fl_target *, const fl_room *, uint32_t,
        fl_error *
    )
    fl_code fl_pipeline_pixels(fl_worker *, const fl_source *, uint64_t, fl_key, const fl_view *, const fl_target *,
                               uint32_t, fl_error *)
    fl_code fl_batch_pixels(fl_batch *, uint32_t, const fl_view *, fl_worker *)
    void fl_batch_run(void *, uint32_t, void *) noexcept
    bint fl_batch_outdated(const fl_batch *, uint32_t, fl_worker *) noexcept
    void fl_batch_ahead(void *, uint32_t, void *) noexcept
    bint fl_batch_cached(const fl_batch *) noexcept

cdef extern from "engine/watch.h" nogil:
    fl_code fl_watch_process(int, fl_error *)

cdef extern from "engine/converter.h" nogil:
    ctypedef struct fl_converter:
        pass
    fl_code fl_converter_start(fl_converter **out, fl_pool *pool, const fl_source *const *sources,
                               uint32_t count, uint32_t threads, fl_error *err)
    void fl_converter_free(fl_converter *)
