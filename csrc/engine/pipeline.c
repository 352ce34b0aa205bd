#include "engine/pipeline.h"

#include <stdlib.h>
#include <string.h>

#include "common/bytes.h"
#include "common/clock.h"
#include "engine/decoder_planes.h"
#include "engine/decoders.h"
#include "engine/shrink.h"
#include "jpeg/dct_form.h"
#include "jpeg/entropy.h"
#include "jpeg/exif.h"
#include "jpeg/libjpeg.h"
#include "jpeg/transcode.h"
#include "store/attached.h"
#include "store/place.h"
#include "store/record.h"

struct fl_worker {
    fl_renderer *renderer;
    fl_store_reader *reader;
    fl_fields *fields; /* made for the first source with items */
    fl_jpeg_entropy *entropy; /* made for the first image file; packed data need none */
    fl_buffer file;  /* the image file, or the attached image, last read */
    fl_buffer facts; /* what is kept of it */
    fl_buffer form;  /* what is to be kept of it */
    fl_shrinker *shrinker; /* made for the first image that is made smaller */
    uint64_t stamp; /* of the files outside of the store that the row under way was read from; 0: of none */
    int64_t
        proving_ns; /* time that it took to prove its image sound: not reading, but the work of a decoder */
    _Atomic(fl_trace *) trace; /* NULL: it is not traced. See NOTE [ trace: one writer, one reader ] */
    fl_trace_event row;        /* what the events of the row under way have in common, if it is traced */
    fl_counters counters;
};

fl_code fl_worker_create(fl_worker **out, fl_error *err) {
    *out = NULL;
    fl_worker *worker = calloc(1, sizeof *worker);
    if (!worker) return fl_fail(err, FL_ENOMEM, "no memory for a worker");
    fl_code code = fl_renderer_create(&worker->renderer, err);
    if (!code) code = fl_store_reader_create(&worker->reader, err);
    if (code) {
        fl_worker_free(worker);
        return code;
    }
    *out = worker;
    return FL_OK;
}

void fl_worker_free(fl_worker *worker) {
    if (!worker) return;
    fl_store_reader_free(worker->reader);
    fl_fields_free(worker->fields);
    fl_jpeg_entropy_free(worker->entropy);
    fl_buffer_free(&worker->file);
    fl_buffer_free(&worker->facts);
    fl_buffer_free(&worker->form);
    fl_shrinker_free(worker->shrinker);
    fl_renderer_free(worker->renderer);
    free(worker);
}

const fl_counters *fl_worker_counters(const fl_worker *worker) { return &worker->counters; }

void fl_worker_trace(fl_worker *worker, fl_trace *trace) {
    atomic_store_explicit(&worker->trace, trace, memory_order_release);
}

static bool is_traced(fl_worker *worker) {
    return atomic_load_explicit(&worker->trace, memory_order_relaxed) != NULL;
}

/* The clock, for a time that nothing but a trace needs; 0: the worker is not traced. */
static int64_t traced_ns(fl_worker *worker) { return is_traced(worker) ? fl_clock_ns() : 0; }

/* Notes a stage of the row under way; start 0: there is none. */
static void note(fl_worker *worker, fl_trace_stage stage, int64_t start, int64_t duration, fl_code code) {
    fl_trace *trace = atomic_load_explicit(&worker->trace, memory_order_acquire);
    if (!trace || !start || duration < 0 || !worker->row.thread) return;
    worker->row.start_ns = start, worker->row.duration_ns = duration;
    worker->row.stage = (uint16_t)stage, worker->row.failed = code != FL_OK;
    fl_trace_put(trace, &worker->row);
}

/* Begins the events of a row of the source that worker->row names; there are none without a trace. */
static void begin_events(fl_worker *worker, uint64_t index, uint32_t epoch) {
    worker->row.thread = is_traced(worker) ? fl_trace_thread() : 0;
    worker->row.index = index, worker->row.epoch = epoch;
}

static void add(_Atomic uint64_t *counter, uint64_t value) {
    atomic_fetch_add_explicit(counter, value, memory_order_relaxed);
}

static fl_code find_record(fl_worker *worker, const fl_source *source, uint64_t index, fl_span given,
                           fl_span *record, fl_error *err) {
    const fl_code code = fl_store_reader_get(worker->reader, source->store, index, given, record, err);
    if (!code) add(&worker->counters.bytes, record->size);
    return code;
}

static uint16_t number_of(const fl_source *source, const fl_part *part, uint64_t index) {
    return part->fields ? part->fields[fl_store_shard_of(source->store, index)] : part->field;
}

/* The stamp of several files, in the order in which they are read. */
static uint64_t mixed(uint64_t before, uint64_t stamp) {
    return before ? before * 0x9E3779B97F4A7C15u ^ stamp : stamp;
}

/* Makes the entropy index of a JPEG, which proves it sound; of one that has none, libjpeg proves it. *checked: what
 * that says, of no warnings where it was not asked. */
static fl_code prove(fl_worker *worker, fl_span data, uint64_t max_pixels, fl_span *index,
                     fl_jpeg_checked *checked, fl_error *err) {
    *checked = (fl_jpeg_checked){.warnings = 0};
    *index = (fl_span){NULL, 0};
    if (!worker->entropy) {
        const fl_code code = fl_jpeg_entropy_create(&worker->entropy, err);
        if (code) return code;
    }
    const uint8_t *marks = NULL;
    size_t size = 0;
    if (!fl_jpeg_entropy_index(worker->entropy, data.bytes, data.size, FL_JPEG_INDEX_EVERY,
                               fl_jpeg_index_most(data.size), &marks, &size))
        return fl_jpeg_check(data.bytes, data.size, max_pixels, checked, err);
    *index = (fl_span){marks, size};
    return FL_OK;
}

/* Notes that an image of the row under way was proved sound, or not, since `start`. */
static void proved(fl_worker *worker, int64_t start, fl_code code) {
    worker->proving_ns = fl_clock_ns() - start;
    note(worker, FL_TRACE_CHECK, start, worker->proving_ns, code);
}

/* The error of an image in a shard's file of which nothing tells that its bytes are right: it is asked for again. */
static fl_code unproved(fl_error *err) {
    return fl_fail(err, FL_ECHECKSUM, "its bytes are not known to be right, and are no sound image");
}

/* The image of a record that was made of a foreign file: proved sound when it is first read. One that is damaged in
 * its object is decoded as far as it goes, as one that was packed is; what was learnt of it is its bytes. See NOTE
 * [ store: foreign files ]. */
static fl_code take_foreign(fl_worker *worker, const fl_source *source, uint64_t index, fl_stored *found,
                            fl_error *err) {
    fl_facts *facts = fl_store_facts(source->store);
    const fl_store_foreign image = fl_store_reader_foreign(worker->reader);
    const fl_record_kind kind = fl_decoder_sniff(found->data);
    found->kind = kind ? kind : FL_RECORD_KIND_JPEG; /* which then says what is wrong with it */
    found->sound = facts && fl_facts_known(facts, index, image.stamp, &worker->facts, &found->index);
    if (found->sound || (kind && kind != FL_RECORD_KIND_JPEG)) return FL_OK;
    fl_jpeg_checked checked;
    const int64_t start = fl_clock_ns();
    const fl_code code = prove(worker, found->data, source->max_pixels, &found->index, &checked, NULL);
    proved(worker, start, code);
    if (!image.given && (code || checked.warnings || checked.smoothed)) return unproved(err);
    found->sound = true;
    if (facts) fl_facts_learn(facts, index, image.stamp, found->index);
    return FL_OK;
}

/* Finds the image of some parts in a record that passed fl_record_check. */
static fl_code find_image(fl_worker *worker, const fl_source *source, const fl_part *part, uint64_t index,
                          fl_span record, fl_stored *found, fl_error *err) {
    const uint16_t number = number_of(source, part, index);
    fl_record_field image;
    fl_code code = fl_record_find(record, number, &image, err);
    if (code) return code;
    *found = (fl_stored){image.kind, image.data, fl_record_index(record, number), true};
    if (image.kind == FL_RECORD_KIND_FILE && fl_store_reader_foreign(worker->reader).stamp)
        return take_foreign(worker, source, index, found, err);
    if (image.kind != FL_RECORD_KIND_PLACE) return FL_OK;
    uint64_t stamp = 0;
    code = fl_attached_read(image.data, fl_store_base(source->store, index), &worker->file, &found->data,
                            &stamp, err);
    worker->stamp = mixed(worker->stamp, stamp);
    if (code) return code;
    add(&worker->counters.bytes, found->data.size);
    const fl_record_kind kind = fl_decoder_sniff(found->data);
    found->kind = kind ? kind : FL_RECORD_KIND_JPEG; /* which then says what is wrong with it */
    return FL_OK;
}

/* Proves a JPEG file sound when it is first read: packing has checked what a store holds, nobody this. See
 * NOTE [ facts: what is learnt ]. */
static fl_code prove_file(fl_worker *worker, const fl_source *source, uint64_t index, uint64_t stamp,
                          fl_stored *found, fl_error *err) {
    const fl_span data = found->data;
    if (fl_files_upright(source->files) && !fl_jpeg_exif_upright(data.bytes, data.size))
        return fl_fail(err, FL_EUNSUPPORTED, "its metadata may turn it");
    fl_jpeg_checked checked;
    const fl_code code = prove(worker, data, source->max_pixels, &found->index, &checked, err);
    if (code) return code;
    if (checked.warnings) return fl_fail(err, FL_EJPEG, "the JPEG is damaged: %.150s", checked.first);
    if (checked.smoothed)
        return fl_fail(err, FL_EUNSUPPORTED,
                       "the progressive JPEG stops before full precision: decoders differ in it");
    found->sound = true;
    fl_facts_learn(fl_files_facts(source->files), index, stamp, found->index);
    return FL_OK;
}

/* The kind of what is kept of a file as its form. */
static fl_record_kind form_kind(const fl_files *files, fl_span form) {
    if (fl_files_side(files)) return FL_RECORD_KIND_JPEG;
    return fl_jpeg_dct_is(form.bytes, form.size) ? FL_RECORD_KIND_DCT : FL_RECORD_KIND_RAW;
}

/* Files of other formats are proved sound by their first decode. */
static fl_code find_file(fl_worker *worker, const fl_source *source, uint64_t index, fl_stored *found,
                         fl_error *err) {
    uint64_t stamp = 0;
    if (fl_files_converted(source->files, index, &worker->file, &found->data, &stamp)) {
        *found = (fl_stored){form_kind(source->files, found->data), found->data, {NULL, 0}, true};
        worker->stamp = stamp;
        add(&worker->counters.bytes, found->data.size);
        return FL_OK;
    }
    fl_code code = fl_files_read(source->files, index, &worker->file, &found->data, &stamp, err);
    if (code) return code;
    found->kind = fl_decoder_sniff(found->data);
    worker->stamp = stamp;
    add(&worker->counters.bytes, found->data.size);
    if (!found->kind || !fl_files_takes(source->files, found->kind))
        return fl_fail(err, FL_EUNSUPPORTED, "it is no image that native threads decode");
    found->sound = fl_facts_known(fl_files_facts(source->files), index, stamp, &worker->facts, &found->index);
    if (found->sound || found->kind != FL_RECORD_KIND_JPEG) return FL_OK;
    const int64_t start = fl_clock_ns();
    code = prove_file(worker, source, index, stamp, found, err);
    proved(worker, start, code);
    return code;
}

/* Number of parts from `first` on that belong to its field. */
static uint32_t group_of(const fl_source *source, uint32_t first) {
    uint32_t n = 1;
    while (first + n < source->count && source->parts[first + n].field == source->parts[first].field) n++;
    return n;
}

/* Opens an image that was found. See fl_renderer_open. */
static fl_code open_image(fl_worker *worker, const fl_source *source, const fl_stored *found,
                          fl_image_form *form, fl_error *err) {
    const fl_code code = fl_renderer_open(worker->renderer, found, source->max_pixels, form, err);
    if (!code) return FL_OK;
    const int64_t took = fl_renderer_opening_ns(worker->renderer);
    add(&worker->counters.decode_ns, (uint64_t)took);
    note(worker, FL_TRACE_DECODE, traced_ns(worker) - took, took, code);
    return code;
}

/* Makes the image that is open or given into the parts of one field, of which `first` is the first. boxes: as
 * fl_render takes them. */
static fl_code make_image(fl_worker *worker, const fl_source *source, uint32_t first, fl_key key,
                          fl_boxes *boxes, const fl_target *targets, uint32_t row, fl_error *err) {
    fl_rendered took;
    fl_code code = fl_render(worker->renderer, source->parts + first, group_of(source, first), key, boxes,
                             targets + first, row, &took, err);
    add(&worker->counters.fallbacks, took.fell_back);
    add(&worker->counters.warnings, took.warnings);
    add(&worker->counters.decode_ns, took.decode_ns);
    add(&worker->counters.resize_ns, took.resize_ns);
    note(worker, FL_TRACE_DECODE, took.decode_at, (int64_t)took.decode_ns, took.resize_at ? FL_OK : code);
    note(worker, FL_TRACE_RESIZE, took.resize_at, (int64_t)took.resize_ns, code);
    return code;
}

static bool is_cropped_by_boxes(const fl_program *program) {
    for (uint32_t i = 0; i < program->count; i++)
        if (program->ops[i].kind == FL_OP_IOU_CROP) return true;
    return false;
}

/* The boxes of the record for a further image, where a crop depends on them: they lie in the first image. */
static fl_code boxes_for(fl_worker *worker, const fl_source *source, const fl_part *part,
                         const fl_image_form *canvas, const fl_image_form *form, fl_boxes **boxes,
                         fl_error *err) {
    *boxes = NULL;
    if (!source->item_count || !is_cropped_by_boxes(&part->program)) return FL_OK;
    if (form->width != canvas->width || form->height != canvas->height)
        return fl_fail(
            err, FL_EARG,
            "RandomIoUCrop cuts images of one size alike, and it has %u x %u pixels beside %u x %u",
            form->width, form->height, canvas->width, canvas->height);
    const fl_code code = fl_fields_renew(worker->fields, err);
    if (!code) *boxes = fl_fields_boxes(worker->fields);
    return code;
}

/* Makes a further image of the record; `canvas` is its first. */
static fl_code make_further(fl_worker *worker, const fl_source *source, uint32_t first, uint64_t index,
                            fl_key key, fl_span record, const fl_image_form *canvas, const fl_target *targets,
                            uint32_t row, fl_error *err) {
    fl_boxes *boxes = NULL;
    fl_stored found;
    fl_image_form form;
    const int64_t start = fl_clock_ns();
    fl_code code = find_image(worker, source, &source->parts[first], index, record, &found, err);
    const int64_t took = fl_clock_ns() - start;
    add(&worker->counters.read_ns, (uint64_t)took);
    note(worker, FL_TRACE_READ, start, took, code);
    if (!code) code = open_image(worker, source, &found, &form, err);
    if (!code) code = boxes_for(worker, source, &source->parts[first], canvas, &form, &boxes, err);
    if (!code) code = make_image(worker, source, first, key, boxes, targets, row, err);
    const char *name = source->parts[first].name;
    if (!code || !err || !name) return code;
    char text[FL_TEXT];
    memcpy(text, err->text, sizeof text);
    return fl_fail(err, code, "field '%.100s': %s", name, text);
}

/* Opens what else of the record goes into the row. See NOTE [ fields: one row ]. */
static fl_code open_items(fl_worker *worker, const fl_source *source, uint64_t index, fl_span record,
                          fl_error *err) {
    if (!source->store) return fl_fail(err, FL_EARG, "image files have no fields beside the image");
    fl_code code = worker->fields ? FL_OK : fl_fields_create(&worker->fields, err);
    return code ? code
                : fl_fields_open(worker->fields, source->items, source->item_count, source->store, index,
                                 record, err);
}

/* Decodes all of a PNG that comes for the first time, and keeps its pixels, where its file's form is kept and
 * there is room. */
static fl_code keep_pixels(fl_worker *worker, const fl_source *source, uint64_t index, const fl_stored *found,
                           const fl_image_form *form, fl_error *err) {
    fl_view image;
    const uint64_t size = 3 * (uint64_t)form->width * form->height + FL_RECORD_RAW_HEADER;
    if (found->kind != FL_RECORD_KIND_PNG || found->sound || !source->files ||
        !fl_files_keeps(source->files, FL_FILES_FORMS) || size > FL_PLACE_MOST ||
        !fl_files_has_room(source->files, size))
        return FL_OK;
    const fl_code code = fl_renderer_whole(worker->renderer, &image, err);
    if (code) return code;
    const fl_span pixels = fl_decoder_raw_of(&image, &worker->form);
    if (pixels.size) (void)fl_files_convert(source->files, index, worker->stamp, pixels, (fl_span){NULL, 0});
    return FL_OK;
}

/* Takes a smaller image in the place of the one that is open, and keeps it, if there is room. See NOTE
 * [ shrink: one image for good ]. */
static fl_code shrink(fl_worker *worker, const fl_source *source, uint64_t index, fl_stored *found,
                      fl_image_form *form, fl_error *err) {
    fl_view image;
    fl_span jpeg;
    const uint32_t side = source->files ? fl_files_side(source->files) : 0;
    if (!fl_shrink_applies(form->width, form->height, side)) return FL_OK;
    const int64_t start = fl_clock_ns() - fl_renderer_opening_ns(worker->renderer);
    fl_code code = fl_renderer_whole(worker->renderer, &image, err);
    if (!code && !worker->shrinker) code = fl_shrinker_create(&worker->shrinker, err);
    if (!code) code = fl_shrink(worker->shrinker, &image, side, &jpeg, err);
    if (code) return code;
    if (fl_files_has_room(source->files, jpeg.size))
        (void)fl_files_convert(source->files, index, worker->stamp, jpeg, (fl_span){NULL, 0});
    *found = (fl_stored){FL_RECORD_KIND_JPEG, jpeg, {NULL, 0}, true};
    add(&worker->counters.decode_ns, (uint64_t)(fl_clock_ns() - start));
    return open_image(worker, source, found, form, err);
}

/* Notes what the first decode of an image shows, which was all of it: that it is sound; of one that is not, and whose
 * bytes nobody vouches for, that they have to be asked for again. */
static fl_code learn_decoded(fl_worker *worker, const fl_source *source, uint64_t index,
                             const fl_stored *found, fl_code code, fl_error *err) {
    fl_facts *facts = source->store ? fl_store_facts(source->store) : fl_files_facts(source->files);
    const fl_store_foreign image = fl_store_reader_foreign(worker->reader);
    if (found->sound || code == FL_ENOMEM || code == FL_ERESOURCE) return code;
    if (code && source->store && !image.given) return unproved(err);
    if (facts && (!code || source->store))
        fl_facts_learn(facts, index, source->store ? image.stamp : worker->stamp, found->index);
    return code;
}

static fl_code make_row(fl_worker *worker, const fl_source *source, uint64_t index, fl_key key, fl_span given,
                        const fl_target *targets, const fl_room *rooms, uint32_t row, fl_error *err) {
    fl_stored found = {.sound = false};
    fl_span record = given;
    fl_image_form form;
    const int64_t start = fl_clock_ns();
    fl_code code = source->store ? find_record(worker, source, index, given, &record, err)
                                 : find_file(worker, source, index, &found, err);
    if (!code && source->store) code = find_image(worker, source, source->parts, index, record, &found, err);
    if (code) return code;
    const int64_t took = fl_clock_ns() - start;
    note(worker, FL_TRACE_READ, start, took, code);
    add(&worker->counters.read_ns, (uint64_t)(took - worker->proving_ns));
    add(&worker->counters.decode_ns, (uint64_t)worker->proving_ns);
    code = open_image(worker, source, &found, &form, err);
    if (!code && source->files && fl_files_upright(source->files) && form.may_turn)
        code = fl_fail(err, FL_EUNSUPPORTED, "its metadata may turn it");
    if (!code) code = keep_pixels(worker, source, index, &found, &form, err);
    if (!code) code = shrink(worker, source, index, &found, &form, err);
    if (!code && source->item_count) code = open_items(worker, source, index, record, err);
    if (!code) {
        fl_boxes *boxes = source->item_count ? fl_fields_boxes(worker->fields) : NULL;
        code = make_image(worker, source, 0, key, boxes, targets, row, err);
    }
    code = learn_decoded(worker, source, index, &found, code, err);
    if (!code && source->item_count) {
        const int64_t filling = traced_ns(worker);
        code = fl_fields_write(worker->fields, fl_renderer_geometry(worker->renderer), form.width,
                               form.height, rooms, row, err);
        note(worker, FL_TRACE_FILL, filling, traced_ns(worker) - filling, code);
    }
    for (uint32_t at = group_of(source, 0); at < source->count && !code; at += group_of(source, at))
        code = make_further(worker, source, at, index, key, record, &form, targets, row, err);
    return code;
}

fl_code fl_pipeline_row(fl_worker *worker, const fl_source *source, uint64_t index, fl_key key, fl_span given,
                        const fl_target *targets, const fl_room *rooms, uint32_t row, fl_error *err) {
    worker->stamp = 0, worker->proving_ns = 0;
    begin_events(worker, index, key.epoch);
    const int64_t start = traced_ns(worker);
    fl_code code = make_row(worker, source, index, key, given, targets, rooms, row, err);
    note(worker, FL_TRACE_SAMPLE, start, traced_ns(worker) - start, code);
    add(&worker->counters.samples, 1);
    if (code) add(&worker->counters.failed, 1);
    return code;
}

/* Never another image's pixels in a row that failed, whatever the policy does next. */
static void clear(const fl_batch *batch, uint32_t row) {
    for (uint32_t i = 0; i < batch->parts; i++) fl_target_clear(&batch->target[i], row);
    if (batch->items)
        fl_fields_clear(batch->sources[batch->row[row].source]->items, batch->items, batch->room, row);
}

fl_code fl_pipeline_pixels(fl_worker *worker, const fl_source *source, uint64_t index, fl_key key,
                           const fl_view *image, const fl_target *targets, uint32_t row, fl_error *err) {
    begin_events(worker, index, key.epoch);
    fl_renderer_give(worker->renderer, image);
    return make_image(worker, source, 0, key, NULL, targets, row, err);
}

fl_code fl_batch_pixels(fl_batch *batch, uint32_t row, const fl_view *image, fl_worker *worker) {
    const fl_row at = batch->row[row];
    const fl_key key = {at.seed, batch->epoch, at.drawn_as};
    worker->row.source = at.source;
    const fl_code code = fl_pipeline_pixels(worker, batch->sources[at.source], at.index, key, image,
                                            batch->target, row, &batch->errors[row]);
    batch->errors[row].code = code;
    if (code) clear(batch, row);
    return code;
}

void fl_batch_run(void *opaque, uint32_t row, void *context) {
    fl_batch *batch = opaque;
    fl_worker *worker = context;
    fl_row at = batch->row[row];
    fl_key key = {at.seed, batch->epoch, at.drawn_as};
    fl_code code = batch->errors[row].code;
    if (!code) {
        worker->row.source = at.source;
        code = fl_pipeline_row(worker, batch->sources[at.source], at.index, key, at.given, batch->target,
                               batch->room, row, &batch->errors[row]);
        batch->row[row].stamp = worker->stamp;
    }
    if (code) {
        batch->errors[row].code = code;
        clear(batch, row);
        atomic_fetch_add_explicit(&batch->failed, 1, memory_order_relaxed);
    }
    if (atomic_fetch_sub_explicit(&batch->left, 1, memory_order_acq_rel) == 1)
        fl_slot_publish(batch->ring, batch->slot);
}

/* The stamp that the files of an attached sample's images have now; 0: it cannot be told. */
static uint64_t attached_now(fl_worker *worker, const fl_source *source, uint64_t index, const char *base) {
    fl_span record;
    uint64_t stamp = 0;
    if (fl_store_reader_get(worker->reader, source->store, index, (fl_span){NULL, 0}, &record, NULL))
        return 0;
    for (uint32_t i = 0; i < source->count; i += group_of(source, i)) {
        fl_record_field image;
        if (fl_record_find(record, number_of(source, &source->parts[i], index), &image, NULL)) return 0;
        if (image.kind == FL_RECORD_KIND_PLACE) stamp = mixed(stamp, fl_attached_now(image.data, base));
    }
    return stamp;
}

bool fl_batch_outdated(const fl_batch *batch, uint32_t row, fl_worker *worker) {
    const fl_row at = batch->row[row];
    const fl_source *source = batch->sources[at.source];
    const char *base = source->store ? fl_store_base(source->store, at.index) : NULL;
    if (source->store && !base) return false;
    return at.stamp != (source->store ? attached_now(worker, source, at.index, base)
                                      : fl_files_now(source->files, at.index));
}

/* The record of an attached image is read at once, to know the places of its images: it is small. */
static bool ahead_attached(const fl_source *source, uint64_t index, const char *base) {
    uint8_t head[FL_STORE_HEAD];
    const fl_span read = {head, fl_store_head(source->store, index, head)};
    bool there = true;
    for (uint32_t i = 0; i < source->count; i += group_of(source, i)) {
        fl_record_field image;
        if (!fl_record_peek(read, number_of(source, &source->parts[i], index), &image)) return false;
        if (image.kind != FL_RECORD_KIND_PLACE) there &= fl_store_ahead(source->store, index);
        else there &= fl_attached_ahead(image.data, base, fl_store_images(source->store));
    }
    return there;
}

static bool ahead(const fl_source *source, uint64_t index) {
    if (!source->store) return fl_files_ahead(source->files, index);
    const char *base = fl_store_base(source->store, index);
    return base ? ahead_attached(source, index, base) : fl_store_ahead(source->store, index);
}

static bool is_warm(const fl_source *source, uint64_t index) {
    if (!source->store) return fl_files_warm(source->files);
    return fl_store_base(source->store, index) ? fl_page_cache_warm(fl_store_images(source->store))
                                               : fl_store_warm(source->store);
}

void fl_batch_ahead(void *opaque, uint32_t row, void *unused) {
    const fl_batch *batch = opaque;
    fl_row at = batch->row[row];
    (void)unused;
    (void)ahead(batch->sources[at.source], at.index);
}

bool fl_batch_cached(const fl_batch *batch) {
    const uint32_t probes[2] = {0, batch->rows / 2};
    for (int i = 0; i < 2; i++) {
        fl_row at = batch->row[probes[i]];
        const fl_source *source = batch->sources[at.source];
        if (!is_warm(source, at.index) || !ahead(source, at.index)) return false;
    }
    return true;
}
