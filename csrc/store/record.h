/* store/record: one sample's bytes, parsed and bounds-checked. Owns nothing: fields point into the caller's
 * span.
 *
 * Little-endian. Header, 16 bytes: u32 magic "FLR1", u16 version, u16 entries, u32 length of the whole
 * record, u32 zero. Then `entries` entries of 16 bytes: u16 field (its place in the manifest's schema), u8
 * kind, u8 zero, u32 offset from the record's start, u32 length, u32 zero. Then the fields' bytes. A kind
 * that is not known is skipped by readers.
 */
#ifndef FL_STORE_RECORD_H
#define FL_STORE_RECORD_H

#include <stdbool.h>

#include "common/bytes.h"
#include "common/status.h"

enum {
    FL_RECORD_MAGIC = 0x31524C46,
    FL_RECORD_VERSION = 1,
    FL_RECORD_HEADER = 16,
    FL_RECORD_ENTRY = 16,
    FL_RECORD_ENTRIES_MAX = 4096,
    FL_RECORD_RAW_HEADER = 12, /* of an FL_RECORD_KIND_RAW */
    FL_RECORD_INDEX = 0x8000
};
typedef enum fl_record_kind {
    FL_RECORD_KIND_JPEG = 1,
    FL_RECORD_KIND_RAW =
        2, /* u32 height, u32 width, u32 channels (3), then height x width x channels bytes */
    FL_RECORD_KIND_BYTES = 3,
    FL_RECORD_KIND_TEXT = 4, /* UTF-8 */
    FL_RECORD_KIND_JSON = 5, /* UTF-8 */
    FL_RECORD_KIND_INDEX =
        6, /* jpeg/entropy_index.h, of the image whose field number is its own less FL_RECORD_INDEX */
    FL_RECORD_KIND_PLACE = 7, /* store/attached.h: an image in a file outside of the dataset */
    FL_RECORD_KIND_PLANES = 8, /* store/planes.h */
    FL_RECORD_KIND_VARYING = 9, /* store/varying.h */
    FL_RECORD_KIND_DCT = 10, /* a JPEG in the DCT form, jpeg/dct_form.h */
    FL_RECORD_KIND_PNG = 11,
    FL_RECORD_KIND_WEBP = 12,
    FL_RECORD_KIND_FILE =
        13 /* an image's file of any format: its first bytes say which. No record on a disk has
                              * it; see NOTE [ store: foreign files ] */
} fl_record_kind;

typedef struct fl_record_field {
    uint16_t field;
    uint8_t kind;
    fl_span data;
} fl_record_field;

/* Checks the header and every entry's bounds. FL_ERECORD with what does not hold. */
fl_code fl_record_check(fl_span record, uint32_t *entries, fl_error *err);

/* Entry i of a record that passed fl_record_check. */
fl_record_field fl_record_entry(fl_span record, uint32_t i);

/* The first entry with that field number: FL_ERECORD when there is none or the record does not hold. */
fl_code fl_record_find(fl_span record, uint16_t field, fl_record_field *out, fl_error *err);

/* The entry with that field number in the first bytes of a record, of which nothing is checked but what lies
 * in these bytes: for hints. False where it does not lie in them as a whole. */
bool fl_record_peek(fl_span head, uint16_t field, fl_record_field *out);

enum {
    FL_RECORD_LEAST = FL_RECORD_HEADER + FL_RECORD_ENTRY
}; /* bytes of a record before those of its one field */

/* Writes what comes before `size` bytes, at most 2^32 - 1 - FL_RECORD_LEAST, that are a record's one field. */
void fl_record_put_head(uint8_t head[FL_RECORD_LEAST], uint16_t field, fl_record_kind kind, uint32_t size);

/* The index of an image in a record that passed fl_record_check; of size 0 when there is none. */
fl_span fl_record_index(fl_span record, uint16_t image_field);

#endif
