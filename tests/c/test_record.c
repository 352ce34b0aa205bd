/* Records and their checksums: of what is written by rule and what is not. */
#define _GNU_SOURCE
#include "store/record.h"

#include <string.h>

#include "check.h"
#include "common/cpu.h"
#include "common/crc32c.h"
#include "draws.h"

static void test_crc(void) {
    uint8_t bytes[40000];
    CHECK(fl_crc32c(0, "123456789", 9) == 0xE3069283 &&
          fl_crc32c(0, NULL, 0) == 0); /* RFC 3720's check value */
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (uint8_t)noise();
    for (int round = 0; round < 3000; round++) {
        size_t from = noise() % 64, size = noise() % (round % 10 ? 1500 : sizeof bytes - 64),
               cut = size ? noise() % size : 0;
        CHECK(fl_cpu_use("plain", NULL) == FL_OK);
        uint32_t whole = fl_crc32c(0, bytes + from, size);
        CHECK(fl_cpu_use(NULL, NULL) == FL_OK);
        CHECK(fl_crc32c(0, bytes + from, size) == whole);
        CHECK(fl_crc32c(fl_crc32c(0, bytes + from, cut), bytes + from + cut, size - cut) == whole);
    }
}

/* A record of two fields; then every byte of its head changed, and every length cut. */
static void test_record(void) {
    uint8_t record[60] = {'F', 'L', 'R', '1', 1, 0, 2, 0, 60};
    memcpy(record + 16, (uint8_t[]){7, 0, FL_RECORD_KIND_BYTES, 0, 48, 0, 0, 0, 5, 0, 0, 0}, 12);
    memcpy(record + 32, (uint8_t[]){9, 0, 77, 0, 53, 0, 0, 0, 7, 0, 0, 0}, 12);
    fl_span span = {record, sizeof record};
    uint32_t entries;
    fl_record_field field;
    fl_error err;
    CHECK(fl_record_check(span, &entries, &err) == FL_OK && entries == 2);
    CHECK(fl_record_find(span, 9, &field, &err) == FL_OK && field.kind == 77 &&
          field.data.bytes == record + 53 && field.data.size == 7);
    CHECK(fl_record_find(span, 8, &field, &err) == FL_ERECORD);
    for (size_t size = 0; size < sizeof record; size++) {
        uint8_t *cut = malloc(size + 1);
        CHECK(cut);
        memcpy(cut, record, size);
        CHECK(fl_record_check((fl_span){cut, size}, &entries, &err) == FL_ERECORD);
        free(cut);
    }
    for (size_t at = 0; at < 48; at++) {
        for (int value = 0; value < 256; value++) {
            uint8_t kept = record[at];
            record[at] = (uint8_t)value;
            if (fl_record_check(span, &entries, &err) == FL_OK) {
                for (uint32_t i = 0; i < entries; i++) {
                    field = fl_record_entry(span, i);
                    CHECK(field.data.bytes >= record + 16 + 16 * entries &&
                          field.data.bytes + field.data.size <= record + sizeof record);
                }
            }
            record[at] = kept;
        }
    }
}

int main(void) {
    test_crc();
    test_record();
    puts("record: ok");
    return 0;
}
