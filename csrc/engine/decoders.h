/* engine/decoders: what makes pixels of a stored image: one fl_decoder for each kind of entry that is an
 * image.
 *
 * A decoder has a state of its own in each thread, made with the first image that needs it. An image is
 * opened, then decoded once or not at all; its bytes stay valid until then. The bytes are hostile. Whatever a
 * decoder does between its open and its decode's return is its time.
 *
 * To add one: its file and header, and a row in decoders.c.
 */
#ifndef FL_ENGINE_DECODERS_H
#define FL_ENGINE_DECODERS_H

#include <stdbool.h>

#include "common/bytes.h"
#include "common/image.h"
#include "common/status.h"
#include "store/record.h"

/* An image as it is stored. */
typedef struct fl_stored {
    fl_record_kind kind;
    fl_span data, index; /* the entropy index, where one is known */
    bool sound; /* all of it was decoded before: what lies below a box need not be read to find its errors */
} fl_stored;

/* What an open image says of itself. */
typedef struct fl_image_form {
    uint32_t width, height;
    uint8_t channels, depth; /* as those of the fl_view that its decode gives */
    bool may_turn; /* its metadata may say how to turn it; of JPEGs see jpeg/exif.h */
} fl_image_form;

/* How the last decode went. */
typedef struct fl_decode_notes {
    uint32_t warnings;
    bool fell_back; /* a slower library decoded it */
} fl_decode_notes;

typedef struct fl_decoder {
    fl_record_kind kind; /* of the entries that it decodes */
    const char *name;
    /* The smaller sizes that it decodes to for less: eighths of 1, 2, 4; else it is always asked for 8. */
    bool scales;
    bool (*is)(fl_span data); /* a file's bytes begin as its kind; NULL: its images are no files */
    fl_code (*create)(void **state, fl_error *err);
    void (*free)(void *state);
    /* FL_ELIMIT beyond max_pixels; an error that names what is wrong with it. */
    fl_code (*open)(void *state, const fl_stored *image, uint64_t max_pixels, fl_image_form *form,
                    fl_error *err);
    /* The pixels of `box`, which lies in the image and which it may widen, at eighths / 8. The view lives
     * until the next call. */
    fl_code (*decode)(void *state, fl_box *box, int eighths, fl_view *view, fl_error *err);
    void (*notes)(const void *state, fl_decode_notes *notes); /* NULL: there is nothing to tell */
} fl_decoder;

enum { FL_DECODERS_MOST = 16 };

/* FL_ELIMIT if an image has more than max_pixels. */
fl_code fl_decoder_limit(uint32_t width, uint32_t height, uint64_t max_pixels, fl_error *err);

/* The place in the table of the decoder of a kind of entry; -1: the kind is no image that this version
 * decodes. */
int fl_decoder_find(fl_record_kind kind);

/* The kind of image that a file's bytes begin as; 0: none of the table. */
fl_record_kind fl_decoder_sniff(fl_span data);

/* The decoder at a place of the table; NULL: beyond its end. */
const fl_decoder *fl_decoder_at(int place);

#endif
