/* A record's bytes: what passes fl_record_check has every field inside, and nothing else is FL_OK. */
#include "common/cpu.h"
#include "common/crc32c.h"
#include "store/record.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const fl_span record = {data, size};
    uint32_t entries = 0;
    fl_error err;
    fl_record_field found;
    fuzz_draws_from_hash(data, size);
    const fl_code code = fl_record_check(record, &entries, &err);
    fuzz_known(code, &err, FUZZ_CODE(FL_ERECORD));
    const uint32_t crc = fl_crc32c(0, data, size);
    CHECK(fl_cpu_use("plain", NULL) == FL_OK && fl_crc32c(0, data, size) == crc &&
          fl_cpu_use(NULL, NULL) == FL_OK);
    if (code != FL_OK) {
        CHECK(fl_record_find(record, (uint16_t)noise(), &found, &err) == FL_ERECORD);
        return 0;
    }
    fuzz_count("records that hold");
    CHECK(entries <= FL_RECORD_ENTRIES_MAX);
    for (uint32_t i = 0; i < entries; i++) {
        const fl_record_field entry = fl_record_entry(record, i);
        CHECK(entry.data.bytes >= data + FL_RECORD_HEADER && entry.data.size <= size &&
              entry.data.bytes + entry.data.size <= data + size);
        volatile uint32_t sum = fl_crc32c(0, entry.data.bytes, entry.data.size);
        (void)sum;
        CHECK(fl_record_find(record, entry.field, &found, &err) == FL_OK && found.field == entry.field);
        const fl_span index = fl_record_index(record, entry.field);
        CHECK(index.size == 0 || (index.bytes >= data && index.bytes + index.size <= data + size));
    }
    fuzz_known(fl_record_find(record, (uint16_t)noise(), &found, &err), &err, FUZZ_CODE(FL_ERECORD));
    return 0;
}

static void put(uint8_t *at, uint32_t value, int bytes) {
    for (int i = 0; i < bytes; i++) at[i] = (uint8_t)(value >> 8 * i);
}

/* Blind mutations, after which the header holds and entries mostly do: else few records are looked into. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed) {
    draws_at = draws_end = NULL;
    noise_state = ((uint64_t)seed + 1) * 0x9E3779B97F4A7C15u;
    size = LLVMFuzzerMutate(data, size, max_size);
    if (noise() % 16 == 0 || size < FL_RECORD_HEADER) return size;
    put(data, FL_RECORD_MAGIC, 4), put(data + 4, FL_RECORD_VERSION, 2), put(data + 8, (uint32_t)size, 4),
        put(data + 12, 0, 4);
    const uint32_t room = (uint32_t)(size - FL_RECORD_HEADER) / FL_RECORD_ENTRY,
                   count = noise() % (room + 1 + (noise() % 16 == 0));
    const uint32_t table = FL_RECORD_HEADER + count * FL_RECORD_ENTRY;
    put(data + 6, count, 2);
    for (uint32_t i = 0; i < count && table <= size && noise() % 32; i++) {
        uint8_t *entry = data + FL_RECORD_HEADER + i * FL_RECORD_ENTRY;
        const uint32_t offset = table + noise() % ((uint32_t)size - table + 1);
        put(entry, noise() % 4 | (noise() % 2 ? FL_RECORD_INDEX : 0), 2), put(entry + 2, noise() % 8, 1);
        put(entry + 4, offset, 4), put(entry + 8, noise() % ((uint32_t)size - offset + 1), 4);
    }
    return size;
}
