/* engine/pipeline: one sample into its row; the last row publishes the slot.
 *
 * NOTE [ pipeline: who owns what ]
 * fl_source   borrowed: its store and program outlive every batch and worker that used it.
 * fl_worker   one thread's decoder, resizer and reader; used by one thread at a time.
 * fl_batch    made by the loader's thread, written by the workers, read again by the loader's thread once its
 * slot is READY.
 *             Between submit and READY only its rows' fields are written, each by the one thread that took
 *             the row.
 *
 * fl_pipeline_row is the one function that makes pixels: batches, and dataset[i], go through it.
 */
#ifndef FL_ENGINE_PIPELINE_H
#define FL_ENGINE_PIPELINE_H

#include <stdatomic.h>

#include "common/image.h"
#include "engine/fields.h"
#include "engine/pool.h"
#include "engine/render.h"
#include "engine/ring.h"
#include "engine/trace.h"
#include "common/rng.h"
#include "common/status.h"
#include "store/files.h"
#include "store/store.h"

/* A dataset: records of a store, or, where that is NULL, image files; and what is made of each of its
 * samples. */
typedef struct fl_source {
    fl_store *store;
    fl_files *files;
    const fl_part *parts; /* [count], at least one; of image files all of one field */
    uint32_t count;
    const fl_item *items; /* [item_count]: what else of each record goes into its row; none of image files */
    uint32_t item_count;
    uint64_t max_pixels;
} fl_source;

/* Counts of a worker's work; added to by its thread, read by others at any time. */
typedef struct fl_counters {
    _Atomic uint64_t samples, failed, warnings, bytes, read_ns, decode_ns, resize_ns;
    /* JPEGs that libjpeg-turbo decoded: progressive, damaged, or otherwise unusual */
    _Atomic uint64_t fallbacks;
} fl_counters;

typedef struct fl_worker fl_worker;

fl_code fl_worker_create(fl_worker **out, fl_error *err);
void fl_worker_free(fl_worker *worker); /* NULL is allowed */
const fl_counters *fl_worker_counters(const fl_worker *worker);

/* Has a worker write its stages into a ring from its next event on; NULL: no more. Any thread. A row under
 * way may still write into the ring before, which the caller keeps until the worker's thread is joined. */
void fl_worker_trace(fl_worker *worker, fl_trace *trace);

/* Makes sample `index` of source, with the draws of `key`, into row `row` of the targets, one for each of its
 * parts, whose width and height must be what fl_geometry_size gives for it, and bounded where that is no more
 * than a bound. `rooms`: of its items. `given`: its record, where that does not lie in the store's file; bytes
 * NULL: it does. */
fl_code fl_pipeline_row(fl_worker *worker, const fl_source *source, uint64_t index, fl_key key, fl_span given,
                        const fl_target *targets, const fl_room *rooms, uint32_t row, fl_error *err);

/* The same of an image that is decoded already, for parts of one field, and no items. */
fl_code fl_pipeline_pixels(fl_worker *worker, const fl_source *source, uint64_t index, fl_key key,
                           const fl_view *image, const fl_target *targets, uint32_t row, fl_error *err);

typedef struct fl_row {
    uint32_t source; /* into the batch's sources */
    uint64_t index;
    uint64_t seed; /* of its draws */
    uint64_t drawn_as; /* the index of its draws: as a rule its own */
    fl_span given; /* its record, as fl_pipeline_row takes it; outlives the row's making */
    /* of the files outside of the store that it was made of, as they were when they were opened; 0: of
     * none */
    uint64_t stamp;
} fl_row;

typedef struct fl_batch {
    fl_ring *ring;
    fl_slot *slot;
    const fl_source *const *sources; /* each of as many parts and items as the batch */
    uint32_t rows, parts, items;
    fl_row *row; /* [rows] */
    /* [rows]; code FL_OK where the row is good. A row that has an error before it is begun is not
     * made. */
    fl_error *errors;
    fl_target *target; /* [parts] */
    fl_room *room; /* [items] */
    uint32_t epoch;
    _Atomic uint32_t left, failed;
} fl_batch;

/* Row `row` of a batch made of an image that is decoded already, in the calling thread; what fl_batch_run
 * made of it is replaced. */
fl_code fl_batch_pixels(fl_batch *batch, uint32_t row, const fl_view *image, fl_worker *worker);

/* fl_work of a batch: opaque is the fl_batch, context an fl_worker. */
void fl_batch_run(void *batch, uint32_t row, void *worker);

/* True if a file of row `row` of a ready batch has changed since the row was made: it was written, replaced,
 * removed, or came back. Asks for the files' status, and reads no image. False for a row that is made of the
 * store alone. */
bool fl_batch_outdated(const fl_batch *batch, uint32_t row, fl_worker *worker);

/* fl_work of the read-ahead thread: the same batch, before or while it is submitted; touches its rows and
 * sources only. */
void fl_batch_ahead(void *batch, uint32_t row, void *unused);

/* True if a batch needs no reading ahead: its records are in the page cache, judged by many before it and by
 * two of its own. */
bool fl_batch_cached(const fl_batch *batch);

#endif
