#include "jpeg/dct_write.h"

#include "common/cpu.h"
#include "common/simd.h"
#include "jpeg/dct_blocks.h"

enum {
    BLOCK_BYTES = 208, /* NOTE [ dct: reading beyond a strip ] */
    DC_WIDTH_MOST = 15,
    /* blocks of a component, or up to twice as many, that the orders are chosen by: their costs add up to
     * less than 2^16 */
    SAMPLES = 512,
    COSTS = 64, /* magnitudes whose costs are looked up */
    TABLE_SHARE = 125 /* the data are at least so many times the entry points */
};

void fl_jpeg_dct_room_free(fl_jpeg_dct_room *room) {
    fl_buffer_free(&room->data);
    fl_buffer_free(&room->strips);
    fl_buffer_free(&room->ends);
    fl_buffer_free(&room->scratch);
    fl_buffer_free(&room->out);
}

/* ---- bits
 * ------------------------------------------------------------------------------------------------ */

typedef fl_jpeg_dct_writer writer;

/* At most 32 bits; those of value above them are zero. */
FL_INLINE void put(writer *w, uint64_t value, unsigned count) {
    w->bits |= value << w->count;
    w->count += count;
    if (w->count < 32) return;
    fl_bytes_put_le32(w->at, (uint32_t)w->bits);
    w->at += 4;
    w->bits >>= 32;
    w->count -= 32;
}

FL_INLINE void put_wide(writer *w, uint64_t value, unsigned count) {
    const unsigned low = count < 32 ? count : 32;
    put(w, value & 0xFFFFFFFFu, low);
    if (count > 32) put(w, value >> 32, count - 32);
}

static void fill_byte(writer *w) {
    for (; w->count > 0; w->count = w->count > 8 ? w->count - 8 : 0, w->bits >>= 8)
        *w->at++ = (uint8_t)w->bits;
}

static unsigned width_of(uint64_t value) { return value ? 64 - (unsigned)__builtin_clzll(value) : 0; }

/* ---- orders
 * -------------------------------------------------------------------------------------------------------- */

FL_INLINE unsigned magnitude_of(int value) { return (unsigned)(value < 0 ? -value : value); }

/* Bits of a significant coefficient beside significance and sign, with each order: 16 bits for each. */
static uint64_t costs_of(unsigned magnitude) {
    uint64_t costs = 0;
    for (unsigned e = 0; e <= FL_JPEG_DCT_ORDER_MOST; e++)
        costs |= (uint64_t)(2 * width_of(((magnitude - 1) >> e) + 1) - 1 + e) << 16 * e;
    return costs;
}

static void choose_orders(fl_jpeg_dct_orders *o, const fl_jpeg_dct_kernels *kernels, const fl_jpeg_frame *f,
                          const int16_t *blocks, unsigned place, unsigned count) {
    const size_t all = (size_t)f->mcus_across * f->mcus_down * count, step = all / SAMPLES + 1;
    uint64_t bits[64] = {0}, costs[COSTS];
    for (unsigned i = 0; i < COSTS; i++) costs[i] = costs_of(i + 1);
    for (size_t i = 0; i < all; i += step) {
        uint8_t places[FL_JPEG_DCT_LIST];
        int16_t values[FL_JPEG_DCT_LIST];
        const unsigned n =
            kernels->list(blocks + 64 * (i / count * f->block_count + place + i % count), places, values);
        for (unsigned k = 0; k < n; k++) {
            const unsigned magnitude = magnitude_of(values[k]);
            bits[places[k]] += magnitude <= COSTS ? costs[magnitude - 1] : costs_of(magnitude);
        }
    }
    memset(o, 0, sizeof *o);
    for (int j = 1; j < 64; j++) {
        unsigned best = 0;
        for (unsigned e = 1; e <= FL_JPEG_DCT_ORDER_MOST; e++)
            if ((uint16_t)(bits[j] >> 16 * e) < (uint16_t)(bits[j] >> 16 * best)) best = e;
        for (unsigned e = 0; e < best; e++) o->above[e] |= 1ull << j;
    }
    fl_jpeg_dct_orders_spread(o);
}

/* ---- strips
 * -------------------------------------------------------------------------------------------------------- */

/* The AC planes of a block. Returns false for a magnitude that the form does not hold. */
FL_INLINE bool put_block(writer *w, const int16_t *values, const uint8_t *places, unsigned n,
                         const fl_jpeg_dct_orders *o) {
    uint64_t sig = 0, more = 0, sign = 0, low[FL_JPEG_DCT_ORDER_MOST] = {0};
    unsigned lows[FL_JPEG_DCT_ORDER_MOST] = {0}, left = 0;
    uint16_t active[64];
    for (unsigned i = 0; i < n; i++) {
        const int value = values[i];
        const unsigned magnitude = magnitude_of(value), order = o->order[places[i]],
                       u = ((magnitude - 1) >> order) + 1;
        if (magnitude > FL_JPEG_DCT_MAGNITUDE_MOST) return false;
        sig |= 1ull << places[i];
        sign |= (uint64_t)(value < 0) << i;
        more |= (uint64_t)(u > 1) << i;
        for (unsigned e = 0; e < order; e++) low[e] |= (uint64_t)((magnitude - 1) >> e & 1) << lows[e]++;
        active[left] = (uint16_t)u;
        left += u > 1;
    }
    put_wide(w, (sig & ~(1ull << places[n - 1])) >> 1, places[n - 1] - 1u);
    put_wide(w, more, n);
    put_wide(w, sign, n);
    for (int e = 0; e < FL_JPEG_DCT_ORDER_MOST; e++) put_wide(w, low[e], lows[e]);
    for (unsigned k = 2; left; k++) {
        uint64_t larger = 0, ones = 0;
        unsigned next = 0;
        for (unsigned i = 0; i < left; i++) {
            const unsigned u = active[i], goes_on = u >> k != 0;
            larger |= (uint64_t)goes_on << i;
            ones |= (uint64_t)(u >> (k - 2) & 1) << i;
            active[next] = (uint16_t)u;
            next += goes_on;
        }
        put_wide(w, larger, left);
        put_wide(w, ones, left);
        left = next;
    }
    return true;
}

static bool put_dc(writer *w, const int16_t *values, uint32_t count) {
    int before = 0;
    for (uint32_t block = 0; block < count; block += FL_JPEG_DCT_GROUP) {
        const uint32_t n = count - block < FL_JPEG_DCT_GROUP ? count - block : FL_JPEG_DCT_GROUP;
        uint32_t folded[FL_JPEG_DCT_GROUP], all = 0;
        for (uint32_t i = 0; i < n; i++) {
            const int dc = values[block + i], step = dc - before;
            before = dc;
            all |= folded[i] = step < 0 ? 2 * (uint32_t)-step - 1 : 2 * (uint32_t)step;
        }
        const unsigned width = width_of(all);
        if (width > DC_WIDTH_MOST) return false;
        put(w, width, 4);
        for (uint32_t i = 0; i < n; i++) put(w, folded[i], width);
    }
    fill_byte(w);
    return true;
}

/* Sizes of a strip, for the table. */
typedef struct strip {
    uint32_t start, dc;
} strip;

FL_INLINE bool put_planes(const fl_jpeg_dct_kernels *kernels, writer *w, const fl_jpeg_dct_source *from,
                          uint8_t *lasts, uint32_t *ends) {
    if (kernels->put) return kernels->put(w, from, lasts, ends);
    const uint8_t *start = w->at;
    for (uint32_t mcu = 0; mcu < from->mcus; mcu++) {
        for (uint32_t x = 0; x < from->across; x++) {
            uint8_t places[FL_JPEG_DCT_LIST];
            int16_t values[FL_JPEG_DCT_LIST];
            const unsigned n = kernels->list(from->blocks + mcu * from->step + 64 * x, places, values);
            if (n && !put_block(w, values, places, n, from->orders)) return false;
            *lasts++ = n ? places[n - 1] : 0;
        }
        *ends++ = (uint32_t)((w->at - start) * 8) + w->count;
    }
    return true;
}

/* Appends a strip. `scratch` has room for a number and a byte for each block; `ends`: AC bits up to the end
 * of each MCU. Returns where it ends, NULL for coefficients beyond the limits. */
FL_INLINE uint8_t *put_strip(const fl_jpeg_dct_kernels *kernels, uint8_t *out, const fl_jpeg_dct_source *from,
                             int16_t *scratch, strip *sizes, uint32_t *ends) {
    const uint32_t count = from->mcus * from->across;
    uint8_t *lasts = (uint8_t *)(scratch + count);
    int16_t *value = scratch;
    for (uint32_t mcu = 0; mcu < from->mcus; mcu++)
        for (uint32_t x = 0; x < from->across; x++) *value++ = from->blocks[mcu * from->step + 64 * x];
    writer dc = {.at = out};
    if (!put_dc(&dc, scratch, count)) return NULL;
    sizes->dc = (uint32_t)(dc.at - out);
    writer last = {.at = dc.at}, ac = {.at = dc.at + (6 * (size_t)count + 7) / 8};
    if (!put_planes(kernels, &ac, from, lasts, ends)) return NULL;
    for (uint32_t i = 0; i < count; i++) put(&last, lasts[i], 6);
    fill_byte(&last);
    fill_byte(&ac);
    return ac.at;
}

#if defined(__x86_64__)
FL_BMI2 static uint8_t *put_strip_bmi2(const fl_jpeg_dct_kernels *kernels, uint8_t *out,
                                       const fl_jpeg_dct_source *from, int16_t *scratch, strip *sizes,
                                       uint32_t *ends) {
    return put_strip(kernels, out, from, scratch, sizes, ends);
}
#endif

static uint8_t *put_any_strip(const fl_jpeg_dct_kernels *kernels, uint8_t *out,
                              const fl_jpeg_dct_source *from, int16_t *scratch, strip *sizes,
                              uint32_t *ends) {
#if defined(__x86_64__)
    if (fl_cpu_has(FL_CPU_BMI2)) return put_strip_bmi2(kernels, out, from, scratch, sizes, ends);
#endif
    return put_strip(kernels, out, from, scratch, sizes, ends);
}

/* ---- the whole
 * ----------------------------------------------------------------------------------------------------- */

bool fl_jpeg_dct_grow(fl_buffer *buffer, size_t used, size_t need) {
    if (buffer->room >= used + need) return true;
    fl_buffer larger = {NULL, 0};
    if (!fl_buffer_fit(&larger, 2 * (used + need), 1, FL_JPEG_DCT_RULE)) return false;
    if (used) memcpy(larger.bytes, buffer->bytes, used);
    fl_buffer_free(buffer);
    *buffer = larger;
    return true;
}

/* Widths and entry points: as dense as TABLE_SHARE allows. */
static void choose_widths(fl_jpeg_dct_form *form, const fl_jpeg_frame *f, const strip *strips,
                          const uint32_t *ends, size_t data) {
    static const uint8_t distances[] = {2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 255};
    const size_t count = (size_t)form->rows * form->lanes;
    uint64_t start = 0, dc[2] = {0};
    for (size_t i = 0; i < count; i++) {
        start |= strips[i].start;
        dc[form->lane[i % form->lanes].component > 0] |= strips[i].dc;
    }
    form->widths = (fl_jpeg_dct_widths){.start = (uint8_t)width_of(start),
                                        .dc = {(uint8_t)width_of(dc[0]), (uint8_t)width_of(dc[1])}};
    for (size_t d = 0; d < sizeof distances; d++) {
        uint64_t step[2] = {0};
        form->every = distances[d];
        for (size_t i = 0; i < count; i++) {
            const uint32_t *end = ends + i * f->mcus_across;
            uint32_t before = 0;
            for (uint32_t mcu = form->every; mcu < f->mcus_across; mcu += form->every) {
                step[form->lane[i % form->lanes].component > 0] |= end[mcu - 1] - before;
                before = end[mcu - 1];
            }
        }
        form->widths.step[0] = (uint8_t)width_of(step[0]), form->widths.step[1] = (uint8_t)width_of(step[1]);
        fl_jpeg_dct_measure(form, f);
        uint64_t bits = 0;
        for (uint32_t i = 0; i < form->lanes; i++)
            bits +=
                (uint64_t)(form->segments - 1) * form->widths.step[form->lane[i].component > 0] * form->rows;
        if (form->segments == 1 || bits / 8 <= data / TABLE_SHARE) return;
    }
}

static void put_table(writer *w, const fl_jpeg_dct_form *form, uint32_t across, const strip *strips,
                      const uint32_t *ends) {
    for (size_t i = 0; i < (size_t)form->rows * form->lanes; i++, ends += across) {
        const int chroma = form->lane[i % form->lanes].component > 0;
        uint32_t before = 0;
        put(w, strips[i].start, form->widths.start);
        put(w, strips[i].dc, form->widths.dc[chroma]);
        for (uint32_t mcu = form->every; mcu < across; mcu += form->every) {
            put(w, ends[mcu - 1] - before, form->widths.step[chroma]);
            before = ends[mcu - 1];
        }
    }
    fill_byte(w);
}

static bool assemble(fl_jpeg_dct_room *room, const fl_jpeg_dct_form *form, const fl_jpeg_frame *f,
                     size_t data, fl_span *out) {
    const size_t orders = (size_t)f->count * FL_JPEG_DCT_ORDERS,
                 table = (size_t)(((uint64_t)form->row_bits * form->rows + 7) / 8);
    const size_t before = FL_JPEG_DCT_HEADER + orders + table, behind = form->head.size + form->tail.size;
    const size_t padding = behind < FL_JPEG_DCT_PAD ? FL_JPEG_DCT_PAD - behind : 0,
                 size = before + data + behind + padding;
    if (!fl_jpeg_dct_grow(&room->out, 0, size + 8)) return false;
    uint8_t *bytes = room->out.bytes;
    memset(bytes, 0, FL_JPEG_DCT_HEADER);
    memcpy(bytes, fl_jpeg_dct_magic, 4);
    bytes[4] = FL_JPEG_DCT_VERSION;
    bytes[5] =
        (uint8_t)((form->ones ? FL_JPEG_DCT_ONES : 0) | (form->progressive ? FL_JPEG_DCT_PROGRESSIVE : 0));
    bytes[6] = (uint8_t)form->every;
    fl_bytes_put_le32(bytes + 8, (uint32_t)form->head.size);
    fl_bytes_put_le32(bytes + 12, (uint32_t)form->tail.size);
    fl_bytes_put_le32(bytes + 16, (uint32_t)data);
    bytes[20] = form->widths.start;
    for (int i = 0; i < 2; i++) bytes[21 + i] = form->widths.dc[i], bytes[23 + i] = form->widths.step[i];
    for (int c = 0; c < f->count; c++)
        for (int i = 0; i < FL_JPEG_DCT_ORDER_MOST; i++) {
            uint8_t *at = bytes + FL_JPEG_DCT_HEADER + c * FL_JPEG_DCT_ORDERS + 8 * i;
            fl_bytes_put_le32(at, (uint32_t)form->orders[c].above[i]);
            fl_bytes_put_le32(at + 4, (uint32_t)(form->orders[c].above[i] >> 32));
        }
    writer w = {.at = bytes + FL_JPEG_DCT_HEADER + orders};
    put_table(&w, form, f->mcus_across, room->strips.bytes, room->ends.bytes);
    uint8_t *at = bytes + before;
    memcpy(at, room->data.bytes, data);
    memcpy(at + data, form->head.bytes, form->head.size);
    memcpy(at + data + form->head.size, form->tail.bytes, form->tail.size);
    memset(at + data + behind, 0, padding);
    *out = (fl_span){bytes, size};
    return true;
}

fl_jpeg_dct_outcome fl_jpeg_dct_write(fl_jpeg_dct_room *room, const fl_jpeg_frame *f,
                                      const fl_jpeg_dct_image *image, fl_span head, fl_span tail,
                                      fl_span *out) {
    const fl_jpeg_dct_kernels *kernels = fl_jpeg_dct_kernels_best();
    fl_jpeg_dct_form form = {
        .head = head, .tail = tail, .ones = image->ones, .progressive = image->progressive, .every = 255};
    if (head.size > INT32_MAX || tail.size > INT32_MAX) return FL_JPEG_DCT_TOO_LARGE;
    fl_jpeg_dct_measure(&form, f);
    const size_t count = (size_t)form.rows * form.lanes, step = (size_t)f->block_count * 64;
    if (!fl_buffer_fit(&room->strips, count, sizeof(strip), FL_JPEG_DCT_RULE) ||
        !fl_buffer_fit(&room->ends, count * f->mcus_across, sizeof(uint32_t), FL_JPEG_DCT_RULE) ||
        !fl_buffer_fit(&room->scratch, form.lane[0].blocks, sizeof(int16_t) + 1, FL_JPEG_DCT_RULE))
        return FL_JPEG_DCT_NO_MEMORY;
    for (uint32_t i = 0; i < form.lanes; i++) {
        const fl_jpeg_dct_lane *l = &form.lane[i];
        const unsigned blocks = l->component || f->count == 1 ? 1 : (unsigned)f->h[0] * f->v[0];
        if (!l->row) choose_orders(&form.orders[l->component], kernels, f, image->blocks, l->place, blocks);
    }
    strip *strips = room->strips.bytes;
    uint32_t *ends = room->ends.bytes;
    size_t used = 0;
    for (uint32_t row = 0; row < form.rows; row++)
        for (uint32_t i = 0; i < form.lanes; i++, strips++, ends += f->mcus_across) {
            const fl_jpeg_dct_lane *l = &form.lane[i];
            const fl_jpeg_dct_source from = {image->blocks + (size_t)row * f->mcus_across * step +
                                                 64 * l->place,
                                             step, f->mcus_across, l->across, &form.orders[l->component]};
            if (!fl_jpeg_dct_grow(&room->data, used, (size_t)l->blocks * BLOCK_BYTES + 64))
                return FL_JPEG_DCT_NO_MEMORY;
            uint8_t *at = (uint8_t *)room->data.bytes + used;
            strips->start = (uint32_t)used;
            const uint8_t *end = put_any_strip(kernels, at, &from, room->scratch.bytes, strips, ends);
            if (!end || (used += (size_t)(end - at)) > INT32_MAX) return FL_JPEG_DCT_TOO_LARGE;
        }
    choose_widths(&form, f, room->strips.bytes, room->ends.bytes, used);
    return assemble(room, &form, f, used, out) ? FL_JPEG_DCT_WRITTEN : FL_JPEG_DCT_NO_MEMORY;
}
