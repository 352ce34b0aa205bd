#include "store/varying.h"

#include <inttypes.h>

fl_code fl_varying_open(fl_span entry, uint32_t levels, uint32_t unit, fl_varying *out, fl_error *err) {
    if (entry.size < 4)
        return fl_fail(err, FL_ERECORD, "its rows have %zu bytes, less than their number", entry.size);
    *out = (fl_varying){.rows = fl_bytes_le32(entry.bytes)};
    const uint8_t *at = entry.bytes + 4;
    size_t left = entry.size - 4;
    uint64_t count = out->rows;
    for (uint32_t level = 0; level < levels; level++) {
        if (count > left / 4)
            return fl_fail(err, FL_ERECORD, "its rows claim %" PRIu64 " lengths in %zu bytes", count, left);
        out->lengths[level] = (fl_span){at, (size_t)count * 4};
        uint64_t sum = 0; /* of less than 2^30 numbers below 2^32 */
        for (size_t i = 0; i < (size_t)count; i++) sum += fl_bytes_le32(at + 4 * i);
        at += 4 * (size_t)count, left -= 4 * (size_t)count;
        count = sum;
    }
    if (count > left / unit || count * unit != left)
        return fl_fail(err, FL_ERECORD, "its rows claim %" PRIu64 " values of %" PRIu32 " bytes in %zu",
                       count, unit, left);
    out->values = (fl_span){at, left};
    return FL_OK;
}
