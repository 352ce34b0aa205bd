/* The DCT form of JPEGs made by the grammar: what has a form comes back byte for byte, and its boxes are the
 * JPEG's; of a form that lies every kernel set makes the same, and nothing is read or written where it must
 * not be. */
#include "jpeg/dct.h"
#include "jpeg/dct_form.h"
#include "jpeg_grammar.h"
#include "jpeg_properties.h"

static fl_jpeg_dct *dct;

static const char *const CPUS[] = {"plain", "bmi2", "bmi2,avx2", "bmi2,avx2,pdep", "bmi2,avx512,pdep",
                                   "neon"};
enum { CPU_SETS = sizeof CPUS / sizeof *CPUS };

/* The JPEG of a form, the same with all kernel sets, or NULL. */
static uint8_t *restored(const uint8_t *form, size_t size, size_t *jpeg_size) {
    uint8_t *first = NULL;
    for (int set = 0; set < CPU_SETS; set++) {
        const uint8_t *out;
        size_t now;
        fl_error err;
        CHECK(fl_cpu_use(CPUS[set], NULL) == FL_OK);
        const fl_code code = fl_jpeg_dct_restore(dct, form, size, &out, &now, &err);
        fuzz_known(code, &err, FUZZ_CODE(FL_EJPEG));
        CHECK(!set || !code == (first != NULL));
        if (code) continue;
        FUZZ_INITIALIZED(out, now);
        if (!first) first = fuzz_copy(out, *jpeg_size = now);
        CHECK(now == *jpeg_size && memcmp(first, out, now) == 0);
    }
    CHECK(fl_cpu_use(NULL, NULL) == FL_OK);
    return first;
}

static void check_boxes(const uint8_t *form, size_t form_size, const uint8_t *bytes, size_t size) {
    uint32_t width, height, again_width, again_height;
    for (int i = 0; i < 3 && fl_jpeg_baseline_open(baseline, bytes, size, &width, &height); i++) {
        const fl_box box = random_box(width, height);
        const int eighths = 1 << below(4);
        fl_view v;
        if (!fl_jpeg_baseline_decode(baseline, &box, eighths, NULL, 0, &v)) continue;
        const fl_view truth = keep_view(&v);
        CHECK(fl_jpeg_baseline_open(baseline, form, form_size, &again_width, &again_height) &&
              width == again_width && height == again_height);
        CHECK(fl_jpeg_baseline_decode(baseline, &box, eighths, NULL, 0, &v) && equal_views(&truth, &v));
        free((void *)(uintptr_t)truth.pixels);
        fuzz_count("boxes");
    }
}

/* Wrong bytes, above all in the header, the orders and the table; or another length. */
static uint8_t *lying(const uint8_t *form, size_t *size) {
    uint8_t *wrong = fuzz_copy(form, *size);
    for (uint32_t i = 1 + below(6); i; i--) {
        const uint32_t within = below(3) ? (uint32_t)*size : *size < 400 ? (uint32_t)*size : 400;
        uint8_t *at = &wrong[below(within)];
        *at = below(2) ? (uint8_t)(*at ^ 1 << below(8)) : below(2) ? 0xFF : (uint8_t)below(256);
    }
    if (below(8) == 0) *size = below((uint32_t)*size + 1);
    uint8_t *cut = fuzz_copy(wrong, *size);
    free(wrong);
    return cut;
}

/* Pixels of a progressive file's form are libjpeg's of the file. */
static void check_progressive(const uint8_t *form, size_t form_size, const uint8_t *bytes, size_t size) {
#ifndef FUZZ_OWN_CODE
    uint32_t width, height;
    const int eighths = 1 << below(4);
    truth t = decode_truth(bytes, size, eighths);
    fl_view v;
    CHECK(fl_jpeg_baseline_open(baseline, form, form_size, &width, &height));
    const fl_box box = {0, 0, width, height};
    if (t.decodes && !t.warnings && fl_jpeg_baseline_decode(baseline, &box, eighths, NULL, 0, &v)) {
        CHECK(v.width == t.width && v.height == t.height);
        for (uint32_t y = 0; y < v.height; y++)
            CHECK(memcmp(v.pixels + y * v.stride, t.pixels + (size_t)y * v.width * 3, (size_t)v.width * 3) ==
                  0);
        fuzz_count("progressive pictures");
    }
    free(t.pixels);
#else
    (void)form, (void)form_size, (void)bytes, (void)size;
#endif
}

static void put_scan_header(jpeg_out *o, const uint8_t *components, uint32_t count, uint32_t from,
                            uint32_t to, uint32_t high, uint32_t low) {
    const size_t start = begin_segment(o, 0xDA);
    put_byte(o, count);
    for (uint32_t i = 0; i < count; i++) put_byte(o, components[2 * i]), put_byte(o, 0);
    put_byte(o, from), put_byte(o, to), put_byte(o, high << 4 | low);
    end_segment(o, start);
}

/* Tables with a code for each symbol: 16 of 5 bits for DC; for AC 254 of 8 bits and two of 9. */
static void put_full_tables(jpeg_out *o) {
    const size_t start = begin_segment(o, 0xC4);
    for (uint32_t ac = 0; ac < 2; ac++) {
        put_byte(o, ac << 4);
        for (uint32_t bits = 1; bits <= 16; bits++)
            put_byte(o, ac ? bits == 8 ? 254 : bits == 9 ? 2 : 0 : bits == 5 ? 16 : 0);
        for (uint32_t i = 0; i < (ac ? 256 : 16); i++) put_byte(o, i);
    }
    end_segment(o, start);
}

/* A sequential file's form as that of a progressive file of the same coefficients, by a script of any bands
 * and bits. */
static uint8_t *rescanned(const uint8_t *form, size_t *size) {
    const size_t head = fl_bytes_le32(form + 8), tail = fl_bytes_le32(form + 12),
                 behind = head + tail < 256 ? 256 : head + tail;
    const uint8_t *old = form + *size - behind;
    const uint32_t count = old[head - 6] == 1 && old[head - 9] == 0xDA ? 1 : 3;
    const uint8_t *components = old + head - 3 - 2 * count;
    const size_t kept = head - 8 - 2 * count; /* the scan header */
    jpeg_out o = {0};
    for (size_t i = 0; i < *size - behind; i++) put_byte(&o, form[i]);
    for (size_t i = 0; i < kept; i++) put_byte(&o, old[i]);
    for (uint8_t *at = o.bytes + *size - behind + 2; at < o.bytes + o.size; at += 2 + (at[2] << 8 | at[3]))
        if (at[1] == 0xC0 || at[1] == 0xC1) at[1] = 0xC2;
    const uint32_t dc = below(3);
    put_full_tables(&o);
    put_scan_header(&o, components, count, 0, 0, 0, dc);
    const size_t head_end = o.size;
    for (uint32_t c = 0; c < count; c++)
        for (uint32_t from = 1, to, low; from < 64; from = to + 1) {
            to = below(2) ? 63 : from + below(64 - from), low = below(3);
            put_scan_header(&o, components + 2 * c, 1, from, to, 0, low);
            for (; low; low--) put_scan_header(&o, components + 2 * c, 1, from, to, low, low - 1);
        }
    for (uint32_t low = dc; low; low--) put_scan_header(&o, components, count, 0, 0, low, low - 1);
    put_marker(&o, 0xD9);
    const size_t now = o.size - (*size - behind);
    fl_bytes_put_le32(o.bytes + 8, (uint32_t)(head_end - (*size - behind)));
    fl_bytes_put_le32(o.bytes + 12, (uint32_t)(o.size - head_end));
    o.bytes[5] |= FL_JPEG_DCT_PROGRESSIVE;
    for (size_t i = now; i < 256; i++) put_byte(&o, 0);
    uint8_t *copy = fuzz_copy(o.bytes, *size = o.size);
    free(o.bytes);
    return copy;
}

static void check_lies(const uint8_t *form, size_t form_size) {
    for (int i = 0; i < 4; i++) {
        size_t wrong_size = form_size, jpeg_size;
        uint8_t *wrong = lying(form, &wrong_size), *again = restored(wrong, wrong_size, &jpeg_size);
        uint32_t width, height;
        if (again) fuzz_count("lies that are lawful");
        if (fl_jpeg_baseline_open(baseline, wrong, wrong_size, &width, &height) &&
            (uint64_t)width * height <= FUZZ_PIXELS_MOST) {
            const fl_box box = random_box(width, height);
            const int eighths = 1 << below(4);
            fl_view v;
            if (fl_jpeg_baseline_decode(baseline, &box, eighths, NULL, 0, &v))
                free((void *)(uintptr_t)keep_view(&v).pixels);
        }
        free(wrong), free(again);
    }
}

/* The progressive file of these coefficients, unless a DC difference has no code, has a form of its own,
 * which gives it back. */
static void check_rescanned(const uint8_t *sequential, size_t size) {
    fl_error err;
    size_t jpeg_size, form_size, again_size;
    const uint8_t *out;
    uint8_t *form = rescanned(sequential, &size), *jpeg = restored(form, size, &jpeg_size);
    if (jpeg && !fl_jpeg_dct_encode(dct, jpeg, jpeg_size, FUZZ_PIXELS_MOST, &out, &form_size, &err)) {
        uint8_t *own = fuzz_copy(out, form_size), *again = restored(own, form_size, &again_size);
        CHECK(again && again_size == jpeg_size && memcmp(again, jpeg, jpeg_size) == 0);
        fuzz_count("progressive forms");
        check_progressive(own, form_size, jpeg, jpeg_size);
        free(own), free(again);
    } else if (jpeg) {
        fuzz_count("progressive files without a form");
    }
    check_lies(form, size);
    free(form), free(jpeg);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fl_error err;
    draws_begin(data, size);
    create_decoders();
    if (!dct) CHECK(fl_jpeg_dct_create(&dct, &err) == FL_OK);
    jpeg_out made = make_jpeg(below(3) != 0);
    uint8_t *bytes = fuzz_copy(made.bytes, made.size);
    const uint8_t *out;
    size_t form_size, jpeg_size;
    fuzz_count("inputs");
    const fl_code code = fl_jpeg_dct_encode(dct, bytes, made.size, FUZZ_PIXELS_MOST, &out, &form_size, &err);
    fuzz_known(code, &err, FUZZ_CODE(FL_EUNSUPPORTED));
    if (!code) {
        uint8_t *form = fuzz_copy(out, form_size), *jpeg = restored(form, form_size, &jpeg_size);
        CHECK(jpeg && jpeg_size == made.size && memcmp(jpeg, bytes, jpeg_size) == 0);
        fuzz_count("forms");
        check_boxes(form, form_size, bytes, made.size);
        if (form[5] & FL_JPEG_DCT_PROGRESSIVE) check_progressive(form, form_size, bytes, made.size);
        check_lies(form, form_size);
        if (!(form[5] & FL_JPEG_DCT_PROGRESSIVE)) check_rescanned(form, form_size);
        free(form), free(jpeg);
    }
    free(bytes), free(made.bytes);
    return 0;
}
