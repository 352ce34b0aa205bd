#include "store/planes_strips.h"

#include <inttypes.h>

fl_code fl_planes_open(fl_span entry, fl_planes *out, fl_error *err) {
    if (entry.size < FL_PLANES_HEADER)
        return fl_fail(err, FL_ERECORD, "its planes have %zu bytes, less than their header", entry.size);
    const uint8_t *at = entry.bytes;
    const uint32_t depth = at[9], codec = at[10];
    *out = (fl_planes){.height = fl_bytes_le32(at),
                       .width = fl_bytes_le32(at + 4),
                       .channels = at[8],
                       .pixel = at[8] * depth};
    if (!out->height || out->height > FL_IMAGE_SIDE_MAX || !out->width || out->width > FL_IMAGE_SIDE_MAX)
        return fl_fail(err, FL_ERECORD, "its planes claim %" PRIu32 " x %" PRIu32 " pixels", out->width,
                       out->height);
    if (!out->channels || out->channels > FL_PLANES_CHANNELS || depth < 1 || depth > 2 ||
        codec > FL_PLANES_ZLIB || at[11])
        return fl_fail(err, FL_ERECORD, "its planes claim %d channels of %d bytes in codec %d", at[8], at[9],
                       at[10]);
    out->codec = (fl_planes_codec)codec;
    out->data = (fl_span){at + FL_PLANES_HEADER, entry.size - FL_PLANES_HEADER};
    if (out->codec == FL_PLANES_STORED) {
        if (out->data.size != (uint64_t)out->height * out->width * out->pixel)
            return fl_fail(err, FL_ERECORD,
                           "its planes have %zu bytes for %" PRIu32 " x %" PRIu32 " pixels of %" PRIu32,
                           out->data.size, out->width, out->height, out->pixel);
        return FL_OK;
    }
    if (out->codec == FL_PLANES_RUNS && out->channels != 1)
        return fl_fail(err, FL_ERECORD, "its planes claim runs of %" PRIu32 " channels", out->channels);
    const size_t strips = (out->height + FL_PLANES_STRIP - 1) / FL_PLANES_STRIP;
    if (out->data.size < 4 * strips ||
        out->data.size - 4 * strips != fl_bytes_le32(out->data.bytes + 4 * (strips - 1)))
        return fl_fail(err, FL_ERECORD, "its planes have %zu bytes, which are not those of %zu strips",
                       out->data.size, strips);
    return FL_OK;
}

fl_code fl_planes_strip(const fl_planes *planes, uint32_t strip, fl_span *out, fl_error *err) {
    const size_t table = (size_t)((planes->height + FL_PLANES_STRIP - 1) / FL_PLANES_STRIP) * 4,
                 room = planes->data.size - table;
    const uint32_t start = strip ? fl_bytes_le32(planes->data.bytes + 4 * (size_t)(strip - 1)) : 0;
    const uint32_t end = fl_bytes_le32(planes->data.bytes + 4 * (size_t)strip);
    if (start > end || end > room)
        return fl_fail(err, FL_ERECORD,
                       "strip %" PRIu32 " of its planes claims bytes %" PRIu32 " to %" PRIu32 " of %zu",
                       strip, start, end, room);
    *out = (fl_span){planes->data.bytes + table + start, end - start};
    return FL_OK;
}
