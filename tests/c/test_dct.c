/* The DCT form of a JPEG: what is encoded comes back byte for byte, with every kernel set; its coefficients
 * are libjpeg's; whatever is damaged is an error or gives something, and under the sanitizers nothing is read
 * or written where it must not be. */
#include "check.h"
#include "common/cpu.h"
#include "jpeg/baseline.h"
#include "jpeg/dct.h"
#include "jpeg/dct_form.h"
#include "jpeg/dct_reader.h"
#include "jpeg/entropy.h"
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
#include "jpeg_maker.h"
#pragma GCC diagnostic pop

static fl_error err;
static fl_jpeg_dct *dct;
static fl_jpeg_entropy *entropy;

/* Each leads to another set; sets that the CPU lacks are another one again. */
static const char *const CPUS[] = {"plain", "bmi2", "bmi2,avx2", "bmi2,avx2,pdep", "bmi2,avx512,pdep",
                                   "neon"};
enum { CPU_SETS = sizeof CPUS / sizeof *CPUS };

static void use(int set) { CHECK(fl_cpu_use(CPUS[set], NULL) == FL_OK); }

static const int samplings[5][3] = {{3, 1, 1}, {3, 2, 1}, {3, 2, 2}, {3, 1, 2}, {1, 1, 1}};

static recipe random_recipe(int sampling, int width, int height) {
    recipe r = {.width = width,
                .height = height,
                .quality = 1 + (int)below(100),
                .smooth = below(2),
                .metadata = below(2)};
    r.components = samplings[sampling][0], r.h = samplings[sampling][1], r.v = samplings[sampling][2];
    r.restart = below(3) ? 0 : 1 + (int)below(5);
    return r;
}

/* Scans of a random script that sends everything. Returns how many. */
static int random_script(int components, jpeg_scan_info *scans) {
    int n = 0, dc = (int)below(3), dc_low[3], band[3][4], bands[3], low[3][3];
    const bool together = below(3) != 0;
    for (int c = 0; c < components; c++) {
        dc_low[c] = dc;
        if (!together || c == 0)
            scans[n++] = (jpeg_scan_info){together ? components : 1, {c, 1, 2}, 0, 0, 0, dc};
        bands[c] = 1 + (int)below(3);
        for (int i = 0; i <= bands[c]; i++) band[c][i] = 1 + 63 * i / bands[c];
        for (int i = 0; i < bands[c]; i++) {
            low[c][i] = (int)below(3);
            scans[n++] = (jpeg_scan_info){1, {c}, band[c][i], band[c][i + 1] - 1, 0, low[c][i]};
        }
    }
    for (int c = 0; c < components; c++) {
        for (int i = 0; i < bands[c]; i++)
            for (int a = low[c][i]; a > 0; a--)
                scans[n++] = (jpeg_scan_info){1, {c}, band[c][i], band[c][i + 1] - 1, a, a - 1};
        for (int a = dc_low[c]; a > 0 && (!together || c == 0); a--)
            scans[n++] = (jpeg_scan_info){together ? components : 1, {c, 1, 2}, 0, 0, a, a - 1};
    }
    return n;
}

/* The same coefficients as a progressive file. */
static file progressive(file f, const recipe *r) {
    struct jpeg_decompress_struct c;
    struct jpeg_compress_struct d;
    struct jpeg_error_mgr errors;
    jpeg_scan_info scans[64];
    file out = {NULL, 0};
    open_file(&c, &errors, f);
    jvirt_barray_ptr *arrays = jpeg_read_coefficients(&c);
    d.err = &errors;
    jpeg_create_compress(&d);
    jpeg_mem_dest(&d, &out.bytes, &out.size);
    jpeg_copy_critical_parameters(&c, &d);
    d.restart_interval = (unsigned)r->restart;
    d.scan_info = scans;
    if (below(3)) d.num_scans = random_script(r->components, scans);
    else jpeg_simple_progression(&d);
    jpeg_write_coefficients(&d, arrays);
    jpeg_finish_compress(&d);
    jpeg_destroy_compress(&d);
    jpeg_destroy_decompress(&c);
    free(f.bytes);
    return out;
}

/* In a block of its own size: the same with all kernel sets. */
static file encoded(file f) {
    const uint8_t *out;
    size_t size;
    uint8_t *before = NULL;
    size_t before_size = 0;
    for (int set = 0; set < CPU_SETS; set++) {
        use(set);
        CHECK(fl_jpeg_dct_encode(dct, f.bytes, f.size, UINT64_MAX, &out, &size, &err) == FL_OK);
        CHECK(!set || (size == before_size && memcmp(before, out, size) == 0));
        before = realloc(before, before_size = size);
        memcpy(before, out, size);
    }
    free(before);
    CHECK(fl_cpu_use(NULL, NULL) == FL_OK);
    CHECK(fl_jpeg_dct_encode(dct, f.bytes, f.size, UINT64_MAX, &out, &size, &err) == FL_OK);
    file form = {malloc(size), size};
    memcpy(form.bytes, out, size);
    return form;
}

static void comes_back(file form, file f) {
    for (int set = 0; set < CPU_SETS; set++) {
        const uint8_t *out;
        size_t size;
        use(set);
        CHECK(fl_jpeg_dct_restore(dct, form.bytes, form.size, &out, &size, &err) == FL_OK);
        CHECK(size == f.size && memcmp(out, f.bytes, size) == 0);
    }
    CHECK(fl_cpu_use(NULL, NULL) == FL_OK);
}

/* Whether a file has a form, from which it then comes back; one without stays a JPEG. */
static bool stays_or_comes_back(file f) {
    const uint8_t *out;
    size_t size;
    if (fl_jpeg_dct_encode(dct, f.bytes, f.size, UINT64_MAX, &out, &size, &err)) return false;
    const file form = {malloc(size), size};
    memcpy(form.bytes, out, size);
    CHECK(fl_jpeg_entropy_sound(entropy, f.bytes, f.size) == fl_jpeg_dct_sound(dct));
    comes_back(form, f);
    free(form.bytes);
    return true;
}

static void every_kind(void) {
    for (int i = 0; i < 1500 / THIN; i++) {
        check_seed = noise_state;
        const int most = i % 10 ? 100 : 700;
        const recipe r = random_recipe(i % 5, 1 + (int)below((uint32_t)most), 1 + (int)below((uint32_t)most));
        const file f = make(&r), form = encoded(f);
        comes_back(form, f);
        free(f.bytes), free(form.bytes);
    }
}

static fl_jpeg_baseline *own;

/* The pixels of a box, or NULL; a copy of its own size. */
static uint8_t *pixels_of(file f, const fl_box *box, int eighths, size_t *size) {
    uint32_t width, height;
    fl_view v;
    if (!fl_jpeg_baseline_open(own, f.bytes, f.size, &width, &height)) return NULL;
    if (!fl_jpeg_baseline_decode(own, box, eighths, NULL, 0, &v)) return NULL;
    *size = v.stride * v.height;
    uint8_t *copy = malloc(*size);
    memcpy(copy, v.pixels, *size);
    return copy;
}

/* Progressive files come back byte for byte, and their pixels are libjpeg's at every scale. */
static void scans(void) {
    for (int i = 0; i < 600 / THIN; i++) {
        check_seed = noise_state;
        const int most = i % 10 ? 100 : 500;
        recipe r = random_recipe(i % 5, 1 + (int)below((uint32_t)most), 1 + (int)below((uint32_t)most));
        r.smooth = i % 3 != 0;
        const file f = progressive(make(&r), &r), form = encoded(f);
        comes_back(form, f);
        CHECK(!fl_jpeg_dct_sound(dct));
        for (int eighths = 1; eighths <= 8; eighths *= 2) {
            int width, height;
            size_t size = 0;
            const fl_box box = {0, 0, (uint32_t)r.width, (uint32_t)r.height};
            unsigned char *truth = decode_all(f, eighths, &width, &height);
            uint8_t *made = pixels_of(form, &box, eighths, &size);
            CHECK(made && size == (size_t)width * (size_t)height * 3 && memcmp(made, truth, size) == 0);
            free(truth), free(made);
        }
        free(f.bytes), free(form.bytes);
    }
}

/* Progressive files that lack a scan, or of which some bits were flipped, stay JPEGs or come back. */
static void broken_scans(void) {
    long kept = 0, came_back = 0;
    for (int i = 0; i < 600 / THIN; i++) {
        check_seed = noise_state;
        const recipe r = random_recipe(i % 5, 1 + (int)below(60), 1 + (int)below(60));
        file f = progressive(make(&r), &r);
        if (i % 2) {
            for (unsigned long at = f.size - 3; at > 0; at--) /* the last scan */
                if (f.bytes[at] == 0xFF && f.bytes[at + 1] == 0xDA) {
                    f.bytes[at + 1] = 0xD9, f.size = at + 2;
                    break;
                }
        } else {
            f.bytes[f.size / 2 + below((uint32_t)f.size / 2)] ^= (unsigned char)(1 << below(8));
        }
        const bool back = stays_or_comes_back(f);
        CHECK(!back || i % 2 == 0);
        *(back ? &came_back : &kept) += 1;
        free(f.bytes);
    }
    CHECK(kept > 300 / THIN && came_back > 20 / THIN);
}

/* Bytes behind the end marker, none at all, an end that is padded with zeros. */
static void tails(void) {
    for (int i = 0; i < 200 / THIN; i++) {
        check_seed = noise_state;
        const recipe r = random_recipe(i % 5, 1 + (int)below(60), 1 + (int)below(60));
        file f = make(&r);
        if (i % 4 == 0) {
            f.bytes = realloc(f.bytes, f.size + 700);
            for (int j = 0; j < 700; j++) f.bytes[f.size + (size_t)j] = (unsigned char)noise();
            f.size += 1 + below(700);
        } else if (i % 4 == 1) {
            f.size -= 2;
        }
        const file form = encoded(f);
        comes_back(form, f);
        free(f.bytes), free(form.bytes);
    }
}

/* Files whose bits were flipped, of which many decode: they stay JPEGs, or come back byte for byte. Padding
 * that is not all ones or all zeros, blocks that another encoder would end otherwise and rubbish behind the
 * last block are among them. */
static void flipped(void) {
    long kept = 0, came_back = 0;
    for (int i = 0; i < 3000 / THIN; i++) {
        check_seed = noise_state;
        const recipe r = random_recipe(i % 5, 1 + (int)below(40), 1 + (int)below(40));
        file f = make(&r);
        fl_jpeg_frame frame;
        fl_jpeg_tables *tables = calloc(1, sizeof *tables);
        CHECK(fl_jpeg_header_read(tables, &frame, f.bytes, f.size));
        free(tables);
        const uint32_t coded = (uint32_t)(f.size - 2 - frame.data);
        const uint32_t at =
            (uint32_t)frame.data + (i % 2 ? below(coded) : coded - 1); /* each second time in the last byte */
        f.bytes[at] ^= (unsigned char)(1 << below(i % 2 ? 8 : 4));
        *(stays_or_comes_back(f) ? &came_back : &kept) += 1;
        free(f.bytes);
    }
    CHECK(kept > 100 / THIN && came_back > 100 / THIN);
}

/* A block of each magnitude and order against the portable kernel: libjpeg's coefficients, read by every
 * kernel set. */
static void coefficients(void) {
    for (int i = 0; i < 60 / THIN; i++) {
        check_seed = noise_state;
        recipe r = random_recipe(i % 5, 8 + (int)below(150), 8 + (int)below(150));
        r.quality = i % 2 ? 100 : r.quality;
        const file f = i % 3 ? make(&r) : progressive(make(&r), &r), form_bytes = encoded(f);
        fl_jpeg_tables *tables = calloc(1, sizeof *tables);
        fl_jpeg_frame frame;
        fl_jpeg_dct_form form;
        CHECK(fl_jpeg_dct_open(&form, form_bytes.bytes, form_bytes.size));
        CHECK(fl_jpeg_dct_frame(&form, tables, &frame) && fl_jpeg_dct_lay_out(&form, &frame));
        struct jpeg_decompress_struct c;
        struct jpeg_error_mgr errors;
        open_file(&c, &errors, f);
        jvirt_barray_ptr *arrays = jpeg_read_coefficients(&c);
        for (uint32_t row = 0; row < form.rows; row++)
            for (uint32_t lane = 0; lane < form.lanes; lane++) {
                fl_jpeg_dct_strip strip;
                CHECK(fl_jpeg_dct_find(&form, row, lane, &strip));
                const fl_jpeg_dct_lane *l = strip.lane;
                const jpeg_component_info *info = &c.comp_info[l->component];
                const uint32_t v = c.num_components == 1 ? 1 : (uint32_t)info->v_samp_factor,
                               y = row * v + l->row;
                if (y >= info->height_in_blocks) continue;
                JBLOCKARRAY truth =
                    c.mem->access_virt_barray((j_common_ptr)&c, arrays[l->component], y, 1, FALSE);
                for (int set = 0; set < CPU_SETS; set++) {
                    use(set);
                    const fl_jpeg_dct_kernels *kernels = fl_jpeg_dct_kernels_best();
                    const uint32_t from = below(l->blocks), to = from + 1 + below(l->blocks - from);
                    int16_t *dc = malloc((to - from) * sizeof *dc),
                            *coefs = malloc(((size_t)(to - from) + 1) * 64 * sizeof *coefs);
                    uint8_t *counts = malloc(to - from);
                    fl_jpeg_dct_reader reader;
                    fl_jpeg_dct_run none = {0};
                    CHECK(fl_jpeg_dct_dc(&strip, from, to, dc) &&
                          fl_jpeg_dct_enter(&reader, kernels, &strip, from, to, dc));
                    reader.run.coefs = coefs, reader.run.counts = counts;
                    while (fl_jpeg_dct_next(&reader, 1 + below(9)))
                        CHECK(kernels->make(&reader.run, &none) && fl_jpeg_dct_settle(&reader));
                    for (uint32_t x = from; x < to && x < info->width_in_blocks; x++)
                        CHECK(memcmp(coefs + (size_t)(x - from) * 64, truth[0][x], 64 * sizeof *coefs) == 0);
                    free(dc), free(coefs), free(counts);
                }
            }
        jpeg_destroy_decompress(&c);
        free(tables), free(f.bytes), free(form_bytes.bytes);
    }
    CHECK(fl_cpu_use(NULL, NULL) == FL_OK);
}

/* All kernel sets find the same damage, or the same bytes. */
static void agree(file form) {
    uint8_t *first = NULL;
    size_t first_size = 0;
    fl_code codes[CPU_SETS];
    for (int set = 0; set < CPU_SETS; set++) {
        const uint8_t *out;
        size_t size;
        use(set);
        codes[set] = fl_jpeg_dct_restore(dct, form.bytes, form.size, &out, &size, &err);
        CHECK((codes[set] == FL_OK || codes[set] == FL_EJPEG) && codes[set] == codes[0]);
        if (codes[set]) continue;
        if (!first) {
            first = malloc(first_size = size);
            memcpy(first, out, size);
        }
        CHECK(size == first_size && memcmp(first, out, size) == 0);
    }
    free(first);
    CHECK(fl_cpu_use(NULL, NULL) == FL_OK);
}

static file copy_of(file f, size_t size) {
    file copy = {malloc(size ? size : 1), size};
    if (size) memcpy(copy.bytes, f.bytes, size);
    return copy;
}

static void damage(void) {
    for (int i = 0; i < 60 / THIN; i++) {
        check_seed = noise_state;
        recipe r = random_recipe(i % 5, 1 + (int)below(120), 1 + (int)below(120));
        if (i % 3 == 0) r.quality = 100;
        const file f = i % 4 ? make(&r) : progressive(make(&r), &r), form = encoded(f);
        for (int j = 0; j < 60;
             j++) { /* cut: the length field does not hold, except where it is the cut that is changed */
            const file cut = copy_of(form, below((uint32_t)form.size));
            agree(cut);
            free(cut.bytes);
        }
        for (int j = 0; j < 300; j++) {
            const file wrong = copy_of(form, form.size);
            const uint32_t near = j % 3 ? (uint32_t)form.size : form.size < 400 ? (uint32_t)form.size : 400;
            for (uint32_t n = 1 + below(3); n; n--)
                wrong.bytes[below(near)] ^= (unsigned char)(1 << below(8));
            agree(wrong);
            free(wrong.bytes);
        }
        /* Planes of all ones take the most bits. */
        const file full = copy_of(form, form.size);
        for (size_t at = full.size / 4; at < full.size - full.size / 4; at++) full.bytes[at] = 0xFF;
        agree(full);
        free(full.bytes), free(f.bytes), free(form.bytes);
    }
}

static fl_box random_box(uint32_t width, uint32_t height, int i) {
    fl_box b = {below(width), below(height), 0, 0};
    if (i % 3 == 0) b.x = b.x / 8 * 8, b.y = b.y / 8 * 8;
    b.width = 1 + below(width - b.x), b.height = 1 + below(height - b.y);
    if (i % 4 == 0) b.width = width - b.x;
    if (i % 5 == 0) b.height = height - b.y;
    return i ? b : (fl_box){0, 0, width, height};
}

/* A box of the form is the box of the JPEG, which test_baseline.c holds against libjpeg. */
static void regions(void) {
    for (int i = 0; i < 400 / THIN; i++) {
        check_seed = noise_state;
        const int most = i % 8 ? 90 : 900;
        const recipe r = random_recipe(i % 5, 1 + (int)below((uint32_t)most), 1 + (int)below((uint32_t)most));
        const file f = make(&r), form = encoded(f);
        for (int j = 0; j < 12; j++) {
            const fl_box box = random_box((uint32_t)r.width, (uint32_t)r.height, j);
            const int eighths = 1 << below(4);
            size_t size = 0, again = 0;
            uint8_t *truth = pixels_of(f, &box, eighths, &size);
            CHECK(truth);
            for (int set = 0; set < CPU_SETS; set++) {
                use(set);
                uint8_t *made = pixels_of(form, &box, eighths, &again);
                CHECK(made && again == size && memcmp(made, truth, size) == 0);
                free(made);
            }
            CHECK(fl_cpu_use(NULL, NULL) == FL_OK);
            free(truth);
        }
        free(f.bytes), free(form.bytes);
    }
}

/* Whatever is damaged gives an error, or pixels: with each kernel set the same. */
static void damaged_regions(void) {
    long made = 0, missed = 0;
    for (int i = 0; i < 40 / THIN; i++) {
        check_seed = noise_state;
        recipe r = random_recipe(i % 5, 1 + (int)below(300), 1 + (int)below(200));
        const file f = make(&r), form = encoded(f);
        const uint32_t head = form.size < 600 ? (uint32_t)form.size : 600;
        for (int j = 0; j < 200; j++) {
            const file wrong = copy_of(form, j % 10 ? form.size : below((uint32_t)form.size));
            for (uint32_t n = 1 + below(3); n && wrong.size; n--)
                wrong.bytes[below(j % 2 && head < wrong.size ? head : (uint32_t)wrong.size)] ^=
                    (unsigned char)(1 << below(8));
            uint32_t width, height;
            if (fl_jpeg_baseline_open(own, wrong.bytes, wrong.size, &width, &height) &&
                (uint64_t)width * height < 1 << 20) {
                const fl_box box = random_box(width, height, j);
                const int eighths = 1 << below(4);
                size_t size = 0, again = 0;
                uint8_t *first = NULL;
                for (int set = 0; set < CPU_SETS; set++) {
                    use(set);
                    uint8_t *now = pixels_of(wrong, &box, eighths, &again);
                    if (!set) first = now, size = again;
                    CHECK(!now == !first &&
                          (!now || again == size)); /* wild coefficients are each inverse DCT's own affair */
                    if (set) free(now);
                }
                first ? made++ : missed++;
                free(first);
            }
            free(wrong.bytes);
        }
        free(f.bytes), free(form.bytes);
    }
    CHECK(fl_cpu_use(NULL, NULL) == FL_OK);
    CHECK(made > 100 / THIN && missed > 100 / THIN);
}

/* The form of one strip with its DC groups, but no planes; every byte of the last positions is `lasts`. */
static file without_planes(file f, uint8_t lasts) {
    fl_jpeg_dct_form form;
    fl_jpeg_dct_strip strip;
    fl_jpeg_frame frame;
    fl_jpeg_tables *tables = calloc(1, sizeof *tables);
    CHECK(fl_jpeg_dct_open(&form, f.bytes, f.size) && fl_jpeg_dct_frame(&form, tables, &frame) &&
          fl_jpeg_dct_lay_out(&form, &frame));
    CHECK(form.rows == 1 && form.lanes == 1 && fl_jpeg_dct_find(&form, 0, 0, &strip));
    const size_t table = (form.widths.start + form.widths.dc[0] + 7u) / 8,
                 before = FL_JPEG_DCT_HEADER + FL_JPEG_DCT_ORDERS + table;
    const size_t dc = strip.lasts / 8, data = strip.ac / 8,
                 behind = (size_t)(f.bytes + f.size - form.head.bytes);
    const file out = {malloc(before + data + behind), before + data + behind};
    memcpy(out.bytes, f.bytes, before);
    memcpy(out.bytes + before, strip.at, dc);
    memset(out.bytes + before + dc, lasts, data - dc);
    memcpy(out.bytes + before + data, form.head.bytes, behind);
    out.bytes[6] = 255; /* MCUs in a segment: the strip is one, and the table has no steps */
    fl_bytes_put_le32(out.bytes + 16, (uint32_t)data);
    free(tables);
    return out;
}

/* Passing over the blocks before a box ends with the strip: the planes that all of them name would lie far
 * behind the form. */
static void passed_over(void) {
    const recipe r = {.width = 8 * 200, .height = 8, .quality = 50, .components = 1, .h = 1, .v = 1};
    const fl_box box = {(uint32_t)r.width - 8, 0, 8, 8};
    const file f = make(&r), form = encoded(f), flat = without_planes(form, 0),
               early = without_planes(form, 0xFF);
    for (int set = 0; set < CPU_SETS; set++) {
        size_t size = 0;
        use(set);
        uint8_t *made = pixels_of(flat, &box, 8, &size);
        CHECK(made && !pixels_of(early, &box, 8, &size));
        free(made);
    }
    CHECK(fl_cpu_use(NULL, NULL) == FL_OK);
    free(f.bytes), free(form.bytes), free(flat.bytes), free(early.bytes);
}

/* A byte too many at the end of what is coded is no fill of its last byte: such a file is not encoded, or
 * comes back with it. */
static void spare_byte(void) {
    for (int i = 0; i < 200 / THIN; i++) {
        const recipe r = {.width = 8 + i, .height = 8, .quality = 60, .components = 1, .h = 1, .v = 1};
        const file f = make(&r), longer = {malloc(f.size + 2), f.size + 2};
        const uint8_t *out;
        size_t size;
        memcpy(longer.bytes, f.bytes, f.size);
        memcpy(longer.bytes + f.size - 2, (const uint8_t[]){0xFF, 0x00, 0xFF, 0xD9}, 4);
        if (fl_jpeg_dct_encode(dct, longer.bytes, longer.size, UINT64_MAX, &out, &size, &err) == FL_OK) {
            const file form = {malloc(size), size};
            memcpy(form.bytes, out, size);
            CHECK(fl_jpeg_dct_restore(dct, form.bytes, form.size, &out, &size, &err) == FL_OK);
            CHECK(size == longer.size && memcmp(out, longer.bytes, size) == 0);
            free(form.bytes);
        } else {
            CHECK(err.text[0]);
        }
        free(f.bytes), free(longer.bytes);
    }
}

static void refused(void) {
    const uint8_t *out;
    size_t size;
    recipe r = {
        .width = 40, .height = 30, .quality = 70, .components = 3, .h = 2, .v = 2, .arithmetic = true};
    file f = make(&r);
    CHECK(fl_jpeg_dct_encode(dct, f.bytes, f.size, UINT64_MAX, &out, &size, &err) == FL_EUNSUPPORTED &&
          err.text[0]);
    free(f.bytes);
    r.arithmetic = false;
    f = make(&r);
    CHECK(fl_jpeg_dct_encode(dct, f.bytes, f.size, 40 * 30 - 1, &out, &size, &err) == FL_EUNSUPPORTED);
    CHECK(fl_jpeg_dct_encode(dct, f.bytes, f.size / 2, UINT64_MAX, &out, &size, &err) == FL_EUNSUPPORTED);
    CHECK(fl_jpeg_dct_restore(dct, f.bytes, f.size, &out, &size, &err) == FL_EJPEG);
    CHECK(fl_jpeg_dct_encode(dct, f.bytes, 0, UINT64_MAX, &out, &size, &err) == FL_EUNSUPPORTED);
    free(f.bytes);
}

int main(void) {
    CHECK(fl_jpeg_dct_create(&dct, &err) == FL_OK && fl_jpeg_entropy_create(&entropy, &err) == FL_OK &&
          fl_jpeg_baseline_create(&own, &err) == FL_OK);
    every_kind();
    tails();
    flipped();
    scans();
    broken_scans();
    coefficients();
    damage();
    regions();
    damaged_regions();
    passed_over();
    spare_byte();
    refused();
    fl_jpeg_baseline_free(own);
    fl_jpeg_entropy_free(entropy);
    fl_jpeg_dct_free(dct);
    return 0;
}
