/* store/record: one sample's bytes, parsed and bounds-checked. Owns nothing: fields point into the caller's span.
 *
 * Little-endian. Header, 16 bytes: u32 magic "FLR1", u16 version, u16 entries, u32 length of the whole record, u32 zero.
 * Then `entries` entries of 16 bytes: u16 field (its place in the manifest's schema), u8 kind, u8 zero, u32 offset from
 * the record's start, u32 length, u32 zero. Then the fields' bytes. A kind that is not known is skipped by readers.
 */
#ifndef FL_STORE_RECORD_H
#define FL_STORE_RECORD_H

#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

typedef struct fl_span {
    const uint8_t *bytes;
    size_t size;
} fl_span;

enum {
    FL_RECORD_MAGIC = 0x31524C46,
    FL_RECORD_VERSION = 1,
    FL_RECORD_HEADER = 16,
    FL_RECORD_ENTRY = 16,
    FL_RECORD_ENTRIES_MAX = 4096,
    FL_RECORD_INDEX = 0x8000
};
typedef enum fl_kind {
    FL_KIND_JPEG = 1,
    FL_KIND_RAW = 2, /* u32 height, u32 width, u32 channels (3), then height x width x channels bytes */
    FL_KIND_BYTES = 3,
    FL_KIND_TEXT = 4, /* UTF-8 */
    FL_KIND_JSON = 5, /* UTF-8 */
    FL_KIND_INDEX = 6 /* jpeg/entropy_index.h, of the image whose field number is its own less FL_RECORD_INDEX */
} fl_kind;

typedef struct fl_field {
    uint16_t field;
    uint8_t kind;
    fl_span data;
} fl_field;

/* Checks the header and every entry's bounds. FL_ERECORD with what does not hold. */
fl_code fl_record_check(fl_span record, uint32_t *entries, fl_error *err);

/* Entry i of a record that passed fl_record_check. */
fl_field fl_record_entry(fl_span record, uint32_t i);

/* The first entry with that field number: FL_ERECORD when there is none or the record does not hold. */
fl_code fl_record_find(fl_span record, uint16_t field, fl_field *out, fl_error *err);

/* The index of an image in a record that passed fl_record_check; of size 0 when there is none. */
fl_span fl_record_index(fl_span record, uint16_t image_field);

/* CRC32C (Castagnoli; RFC 3720), run-time dispatch to the CPU's instruction, 0 for no bytes; crc continues an earlier one. */
uint32_t fl_crc32c(uint32_t crc, const void *bytes, size_t size);

/* The same without the instruction: what other CPUs run, and what tests compare with. */
uint32_t fl_crc32c_software(uint32_t crc, const void *bytes, size_t size);

#endif
