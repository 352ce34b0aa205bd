#define _GNU_SOURCE
#include "engine/converter.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "engine/decoder_planes.h"
#include "engine/decoders.h"
#include "jpeg/dct.h"
#include "store/place.h"

enum {
    /* a hundredth of another thread's time; with none at all, its end would be waited for */
    LEAST_PRIORITY = 19,
    REST_MS = 1, /* that a pool has to rest before anything is converted */
    OTHERS_MS = 20, /* between two looks whether other pools still work */
    PAUSE_MS = 50,
    PAUSE_MOST_MS = 60000, /* after a round that found nothing: at first, and at most */
    ROOM_LEAST = 1 << 16, /* bytes without which nothing is tried */
    PASSED_MOST = 4096 /* images with nothing to do, that a thread passes before it looks around */
};

typedef struct helper {
    fl_converter *converter;
    uint32_t number;
    pthread_t thread;
    fl_jpeg_dct *dct; /* made with the first JPEG */
    void *png;        /* with the first PNG */
    fl_buffer file, facts, form;
    uint32_t source; /* that it is at, and the image in it */
    uint64_t index;
    bool found; /* something to do in this round */
} helper;

struct fl_converter {
    fl_pool *pool;
    const fl_source *const *sources;
    uint32_t count, threads, started;
    helper *helpers;
    pid_t pid;
    pthread_mutex_t lock;
    pthread_cond_t ends;
    _Atomic bool ending; /* set under the lock */
};

/* Waits, unless the thread is to end; true if the thread is to end. */
static bool nap(fl_converter *converter, int64_t ms) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += ms / 1000;
    until.tv_nsec += ms % 1000 * 1000000;
    if (until.tv_nsec >= 1000000000) until.tv_sec++, until.tv_nsec -= 1000000000;
    pthread_mutex_lock(&converter->lock);
    int waited = 0;
    while (!atomic_load(&converter->ending) && !waited)
        waited = pthread_cond_timedwait(&converter->ends, &converter->lock, &until);
    const bool ending = atomic_load(&converter->ending);
    pthread_mutex_unlock(&converter->lock);
    return ending;
}

/* The DCT form; empty: the file has none. False: for want of memory it is not known. */
static bool form_of_jpeg(helper *self, const fl_source *source, fl_span bytes, fl_span *form) {
    if (!self->dct && fl_jpeg_dct_create(&self->dct, NULL)) return false;
    if (fl_jpeg_dct_encode(self->dct, bytes.bytes, bytes.size, source->max_pixels, &form->bytes, &form->size,
                           NULL))
        *form = (fl_span){NULL, 0};
    return true;
}

/* The pixels of a PNG; otherwise as form_of_jpeg(). False, too: there is no room for them now. */
static bool form_of_png(helper *self, const fl_source *source, fl_span bytes, fl_span *form) {
    const fl_decoder *png = fl_decoder_at(fl_decoder_find(FL_RECORD_KIND_PNG));
    const fl_stored stored = {FL_RECORD_KIND_PNG, bytes, {NULL, 0}, true};
    fl_image_form says;
    fl_view image;
    if (!self->png && png->create(&self->png, NULL)) return false;
    if (png->open(self->png, &stored, source->max_pixels, &says, NULL)) return true;
    const uint64_t size = 3 * (uint64_t)says.width * says.height + FL_RECORD_RAW_HEADER;
    if (size > FL_PLACE_MOST) return true;
    if (!fl_files_has_room(source->files, size)) return false;
    fl_box whole = {0, 0, says.width, says.height};
    if (png->decode(self->png, &whole, 8, &image, NULL)) return true;
    *form = fl_decoder_raw_of(&image, &self->form);
    return form->size != 0;
}

/* Converts an image whose file is still the one of that stamp. */
static void convert(helper *self, const fl_source *source, uint64_t index, uint64_t stamp) {
    fl_span bytes, facts, form = {NULL, 0};
    uint64_t now;
    if (fl_files_read(source->files, index, &self->file, &bytes, &now, NULL) || now != stamp ||
        !fl_facts_known(fl_files_facts(source->files), index, stamp, &self->facts, &facts) ||
        !fl_files_has_room(source->files, bytes.size))
        return;
    const fl_record_kind kind = fl_decoder_sniff(bytes);
    if (kind == FL_RECORD_KIND_JPEG && !form_of_jpeg(self, source, bytes, &form)) return;
    if (kind == FL_RECORD_KIND_PNG && !form_of_png(self, source, bytes, &form)) return;
    self->found |= fl_files_convert(source->files, index, stamp, form, facts);
}

/* Goes on to the next image that may be converted, and does so, if it is near; false: the round is over. */
static bool step(helper *self) {
    const fl_converter *converter = self->converter;
    uint32_t passed = 0;
    while (self->source < converter->count) {
        const fl_source *source = converter->sources[self->source];
        const bool some = source->files && fl_files_keeps(source->files, FL_FILES_FORMS) &&
                          fl_files_has_room(source->files, ROOM_LEAST);
        while (some && self->index < fl_files_count(source->files)) {
            const uint64_t index = self->index, stamp = fl_files_to_convert(source->files, index);
            self->index += converter->threads;
            if (stamp) convert(self, source, index, stamp);
            if (stamp || ++passed == PASSED_MOST) return true;
        }
        self->source++, self->index = self->number;
    }
    self->source = 0;
    return false;
}

static void *run(void *arg) {
    helper *self = arg;
    fl_converter *converter = self->converter;
    setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), LEAST_PRIORITY);
    int64_t pause = PAUSE_MS;
    bool ending = false;
    while (!ending) {
        bool over = false;
        fl_pool_await_rest(converter->pool, &converter->ending);
        const uint64_t turns = fl_pool_turns(converter->pool);
        ending = nap(converter, REST_MS);
        while (!ending && !over && !fl_pools_at_work() && fl_pool_rests(converter->pool) &&
               fl_pool_turns(converter->pool) == turns) {
            over = !step(self);
            ending = atomic_load(&converter->ending);
        }
        if (!over && fl_pools_at_work() && fl_pool_rests(converter->pool)) ending = nap(converter, OTHERS_MS);
        if (!over) continue;
        if (!self->found) ending = nap(converter, pause);
        pause = self->found ? PAUSE_MS : pause < PAUSE_MOST_MS / 2 ? 2 * pause : PAUSE_MOST_MS;
        self->found = false;
    }
    fl_jpeg_dct_free(self->dct);
    fl_buffer_free(&self->file);
    fl_buffer_free(&self->facts);
    fl_buffer_free(&self->form);
    fl_decoder_at(fl_decoder_find(FL_RECORD_KIND_PNG))->free(self->png);
    return NULL;
}

static fl_code start(fl_converter *converter, uint32_t threads, fl_error *err) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = 0;
    for (uint32_t i = 0; i < threads && !failed; i++) {
        helper *self = &converter->helpers[i];
        *self = (helper){.converter = converter, .number = i, .index = i};
        failed = pthread_create(&self->thread, NULL, run, self);
        if (failed) break;
        converter->started = i + 1;
        pthread_setname_np(self->thread, "fl-convert");
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failed ? fl_fail_sys(err, FL_ERESOURCE, failed, "no thread to convert images") : FL_OK;
}

fl_code fl_converter_start(fl_converter **out, fl_pool *pool, const fl_source *const *sources, uint32_t count,
                           uint32_t threads, fl_error *err) {
    *out = NULL;
    fl_converter *converter = calloc(1, sizeof *converter);
    if (!converter) return fl_fail(err, FL_ENOMEM, "no memory for converting images");
    *converter = (fl_converter){pool, sources, count, threads, .pid = getpid()};
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&converter->lock, NULL);
    pthread_cond_init(&converter->ends, &monotonic);
    pthread_condattr_destroy(&monotonic);
    converter->helpers = calloc(threads + 1, sizeof *converter->helpers);
    const fl_code code = converter->helpers ? start(converter, threads, err)
                                            : fl_fail(err, FL_ENOMEM, "no memory for converting images");
    if (code) {
        fl_converter_free(converter);
        return code;
    }
    *out = converter;
    return FL_OK;
}

void fl_converter_free(fl_converter *converter) {
    if (!converter) return;
    if (converter->pid == getpid()) {
        pthread_mutex_lock(&converter->lock);
        atomic_store(&converter->ending, true);
        pthread_cond_broadcast(&converter->ends);
        pthread_mutex_unlock(&converter->lock);
        fl_pool_wake(converter->pool);
        for (uint32_t i = 0; i < converter->started; i++) pthread_join(converter->helpers[i].thread, NULL);
        pthread_cond_destroy(&converter->ends);
        pthread_mutex_destroy(&converter->lock);
    }
    free(converter->helpers);
    free(converter);
}
