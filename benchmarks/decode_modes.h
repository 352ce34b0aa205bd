/* decode_modes: the ways to decode a picture that decode.c holds against each other. */
#ifndef DECODE_MODES_H
#define DECODE_MODES_H

#include "common/image.h"
#include "floor_decode.h"

enum { MODES = 14 };
extern const char *const MODE_NAMES[MODES];

typedef struct sample {
    picture *file;
    uint8_t *index; /* as packing makes it */
    size_t index_size;
    uint8_t *form; /* the picture in the DCT form; NULL: it stays a JPEG */
    size_t form_size;
    fl_box centre; /* what Resize(target * 8 / 7) + CenterCrop(target) needs of the picture */
    int centre_eighths;
    uint32_t resized_width, resized_height; /* what the whole picture becomes there */
} sample;

/* One thread's decoders and the places they write to. */
typedef struct worker worker;

/* All of these end the program with a line on stderr when something fails. */
worker *worker_create(uint32_t target, uint32_t every); /* every: 0 for packing's own index */
void worker_free(worker *w);
void worker_prepare(worker *w, sample *s); /* everything but file is filled in */
void worker_run(worker *w, const sample *s, int mode);

/* The whole image by fl_jpeg_baseline and by TurboJPEG must be the same bytes. */
void worker_compare(worker *w, const sample *s);

#endif
