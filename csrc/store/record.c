#include "store/record.h"

#include <inttypes.h>
#include <string.h>

fl_code fl_record_check(fl_span record, uint32_t *entries, fl_error *err) {
    const uint8_t *at = record.bytes;
    if (record.size < FL_RECORD_HEADER) {
        return fl_fail(err, FL_ERECORD, "the record is %zu bytes long, shorter than its header", record.size);
    }
    if (fl_bytes_le32(at) != FL_RECORD_MAGIC)
        return fl_fail(err, FL_ERECORD, "the record does not begin with FLR1");
    if (fl_bytes_le16(at + 4) != FL_RECORD_VERSION) {
        return fl_fail(err, FL_ERECORD,
                       "the record is of version %" PRIu32 ", this fastload reads version %d",
                       fl_bytes_le16(at + 4), FL_RECORD_VERSION);
    }
    if (fl_bytes_le32(at + 8) != record.size) {
        return fl_fail(err, FL_ERECORD, "the record says it is %" PRIu32 " bytes long, %zu are stored",
                       fl_bytes_le32(at + 8), record.size);
    }
    if (fl_bytes_le32(at + 12) != 0)
        return fl_fail(err, FL_ERECORD, "the record's header ends in %08" PRIx32 ", not in zero",
                       fl_bytes_le32(at + 12));
    uint32_t n = fl_bytes_le16(at + 6);
    size_t table = FL_RECORD_HEADER + (size_t)n * FL_RECORD_ENTRY;
    if (n > FL_RECORD_ENTRIES_MAX || table > record.size) {
        return fl_fail(err, FL_ERECORD, "the record claims %" PRIu32 " fields in %zu bytes", n, record.size);
    }
    for (uint32_t i = 0; i < n; i++) {
        const uint8_t *entry = at + FL_RECORD_HEADER + (size_t)i * FL_RECORD_ENTRY;
        uint64_t offset = fl_bytes_le32(entry + 4), length = fl_bytes_le32(entry + 8);
        if (offset < table || offset + length > record.size) {
            return fl_fail(err, FL_ERECORD,
                           "field %" PRIu32 " claims bytes %" PRIu64 " to %" PRIu64 " of a record of %zu",
                           fl_bytes_le16(entry), offset, offset + length, record.size);
        }
    }
    *entries = n;
    return FL_OK;
}

fl_record_field fl_record_entry(fl_span record, uint32_t i) {
    const uint8_t *entry = record.bytes + FL_RECORD_HEADER + (size_t)i * FL_RECORD_ENTRY;
    return (fl_record_field){
        .field = (uint16_t)fl_bytes_le16(entry),
        .kind = entry[2],
        .data = {record.bytes + fl_bytes_le32(entry + 4), fl_bytes_le32(entry + 8)},
    };
}

fl_code fl_record_find(fl_span record, uint16_t field, fl_record_field *out, fl_error *err) {
    uint32_t entries;
    fl_code code = fl_record_check(record, &entries, err);
    if (code) return code;
    for (uint32_t i = 0; i < entries; i++) {
        *out = fl_record_entry(record, i);
        if (out->field == field) return FL_OK;
    }
    return fl_fail(err, FL_ERECORD, "the record has no field %d", field);
}

bool fl_record_peek(fl_span head, uint16_t field, fl_record_field *out) {
    if (head.size < FL_RECORD_HEADER) return false;
    const uint32_t entries = fl_bytes_le16(head.bytes + 6);
    for (uint32_t i = 0; i < entries && FL_RECORD_HEADER + (size_t)(i + 1) * FL_RECORD_ENTRY <= head.size;
         i++) {
        const uint8_t *entry = head.bytes + FL_RECORD_HEADER + (size_t)i * FL_RECORD_ENTRY;
        if (fl_bytes_le16(entry) != field) continue;
        const uint64_t offset = fl_bytes_le32(entry + 4), length = fl_bytes_le32(entry + 8);
        if (offset + length > head.size) return false;
        *out = fl_record_entry(head, i);
        return true;
    }
    return false;
}

fl_span fl_record_index(fl_span record, uint16_t image_field) {
    const uint32_t entries = fl_bytes_le16(record.bytes + 6);
    for (uint32_t i = 0; i < entries; i++) {
        const fl_record_field entry = fl_record_entry(record, i);
        if (entry.field == (image_field | FL_RECORD_INDEX) && entry.kind == FL_RECORD_KIND_INDEX)
            return entry.data;
    }
    return (fl_span){NULL, 0};
}

void fl_record_put_head(uint8_t head[FL_RECORD_LEAST], uint16_t field, fl_record_kind kind, uint32_t size) {
    memset(head, 0, FL_RECORD_LEAST);
    fl_bytes_put_le32(head, FL_RECORD_MAGIC);
    fl_bytes_put_le16(head + 4, FL_RECORD_VERSION);
    fl_bytes_put_le16(head + 6, 1);
    fl_bytes_put_le32(head + 8, FL_RECORD_LEAST + size);
    fl_bytes_put_le16(head + 16, field);
    head[18] = (uint8_t)kind;
    fl_bytes_put_le32(head + 20, FL_RECORD_LEAST);
    fl_bytes_put_le32(head + 24, size);
}
