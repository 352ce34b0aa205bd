/* An entry of planes, and pixels that are encoded: hostile bytes are FL_ERECORD or give each pixel one value,
 * however they are asked for; what was encoded decodes to the same; and a transform makes an image of exactly
 * its target's bytes, or fails. */
#include "store/planes.h"

#include "engine/render.h"
#include "fuzz.h"

enum { MOST = 1 << 16 }; /* pixels of a picture that is decoded as a whole */

static fl_buffer scratch, entry;

static fl_program make_program(void) {
    static const fl_op_kind kinds[] = {FL_OP_RESIZED_CROP, FL_OP_RESIZE, FL_OP_CENTER_CROP, FL_OP_RANDOM_CROP,
                                       FL_OP_HFLIP,        FL_OP_VFLIP,  FL_OP_ZOOM_OUT,    FL_OP_LETTERBOX};
    fl_program program = {.count = below(4)};
    for (uint32_t i = 0; i < program.count; i++)
        program.ops[i] = (fl_op){.kind = kinds[below(8)],
                                 .stream = (uint16_t)i,
                                 .width = 1 + below(40),
                                 .height = 1 + below(40),
                                 .scale = {1, 1 + unit()},
                                 .ratio = {0.5, 2},
                                 .p = 0.5,
                                 .pad_if_needed = true,
                                 .fill = {7, 7, 7},
                                 .filter = (int)below(2),
                                 .antialias = below(2)};
    return program;
}

/* The entry as an image of a sample, into a target that is allocated to its last byte; now and then of
 * another form. */
static void check_render(const uint8_t *data, size_t size, bool holds) {
    static fl_renderer *renderer;
    fl_error err;
    fl_planes planes;
    fl_rendered report;
    fl_image_form form;
    if (!renderer) CHECK(fl_renderer_create(&renderer, &err) == FL_OK);
    CHECK(fl_planes_open((fl_span){data, size}, &planes, &err) == FL_OK);
    const fl_span entry = {data, size};
    CHECK(fl_renderer_open(renderer, &(fl_stored){.kind = FL_RECORD_KIND_PLANES, .data = entry}, 1, &form,
                           &err) == (planes.width * planes.height > 1 ? FL_ELIMIT : FL_OK));
    CHECK(fl_renderer_open(renderer, &(fl_stored){.kind = FL_RECORD_KIND_PLANES, .data = entry}, MOST, &form,
                           &err) == FL_OK);
    const fl_part part = {.program = make_program()};
    const fl_key key = {1, 2, noise()};
    fl_target target = {.sink = {.layout = (fl_layout)below(2)}};
    fl_sink *sink = &target.sink;
    fl_code code =
        fl_geometry_size(&part.program, form.width, form.height, key, &sink->width, &sink->height, &err);
    if (code || (uint64_t)sink->width * sink->height > MOST) return;
    const bool lies = below(16) == 0;
    sink->channels = (uint8_t)(lies ? below(5) : planes.channels);
    sink->depth = (uint8_t)(lies ? sink->channels ? 1 + below(2) : 0 : planes.pixel / planes.channels);
    sink->dtype = sink->depth == 2 ? FL_U16 : FL_U8;
    target.row_bytes =
        (size_t)sink->width * sink->height * (sink->channels ? (size_t)sink->channels * sink->depth : 3);
    sink->data = fuzz_allocate(target.row_bytes);
    code = fl_render(renderer, &part, 1, key, NULL, &target, 0, &report, &err);
    fuzz_known(code, &err, FUZZ_CODE(FL_ERECORD) | FUZZ_CODE(FL_ELIMIT));
    if (holds && sink->channels == planes.channels && sink->depth * planes.channels == planes.pixel) {
        CHECK(code == FL_OK);
        fuzz_count("images made");
    }
    free(sink->data);
}

static void check_entry(const uint8_t *data, size_t size) {
    fl_error err;
    fl_planes planes;
    fl_code code = fl_planes_open((fl_span){data, size}, &planes, &err);
    fuzz_known(code, &err, FUZZ_CODE(FL_ERECORD));
    if (code || (uint64_t)planes.height * planes.width > MOST) return;
    const size_t stride = (size_t)planes.width * planes.pixel;
    uint8_t *whole = fuzz_allocate(planes.height * stride), *row = fuzz_allocate(stride);
    code = fl_planes_box(&planes, (fl_box){0, 0, planes.width, planes.height}, whole, stride, &scratch, &err);
    fuzz_known(code, &err, FUZZ_CODE(FL_ERECORD));
    uint32_t *columns = fuzz_allocate(planes.width * sizeof *columns);
    for (int i = 0; i < 4; i++) {
        const uint32_t y = noise() % planes.height, count = 1 + noise() % planes.width;
        for (uint32_t j = 0; j < count; j++)
            columns[j] = i ? i == 1 ? planes.width - 1 - j : j : noise() % planes.width;
        const fl_code picked = fl_planes_sample(&planes, &y, 1, columns, count, row, stride, &scratch, &err);
        fuzz_known(picked, &err, FUZZ_CODE(FL_ERECORD));
        CHECK(code || !picked);
        for (uint32_t j = 0; j < count && !code; j++)
            CHECK(!memcmp(row + (size_t)j * planes.pixel,
                          whole + y * stride + (size_t)columns[j] * planes.pixel, planes.pixel));
    }
    if (!code) fuzz_count("entries that hold");
    check_render(data, size, !code);
    free(whole), free(row), free(columns);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fl_error err;
    fuzz_draws_from_hash(data, size);
    check_entry(data, size);
    if (size < 3) return 0;
    const uint32_t channels = 1 + data[0] % 4, depth = 1 + data[0] / 4 % 2, width = 1 + data[1];
    const size_t stride = (size_t)width * channels * depth, height = (size - 2) / stride;
    if (!height) return 0;
    size_t bytes;
    fl_planes planes;
    CHECK(fl_planes_encode(data + 2, (uint32_t)height, width, channels, depth, &entry, &bytes, &err) ==
          FL_OK);
    CHECK(fl_planes_open((fl_span){entry.bytes, bytes}, &planes, &err) == FL_OK);
    uint8_t *out = fuzz_allocate(height * stride);
    CHECK(fl_planes_box(&planes, (fl_box){0, 0, width, (uint32_t)height}, out, stride, &scratch, &err) ==
          FL_OK);
    CHECK(!memcmp(out, data + 2, height * stride));
    fuzz_count("pictures encoded");
    free(out);
    return 0;
}

/* Blind mutations, after which the header mostly holds. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed) {
    draws_at = draws_end = NULL;
    noise_state = ((uint64_t)seed + 1) * 0x9E3779B97F4A7C15u;
    size = LLVMFuzzerMutate(data, size, max_size);
    if (noise() % 8 == 0 || size < FL_PLANES_HEADER + 4) return size;
    fl_bytes_put_le32(data, 1 + noise() % 40), fl_bytes_put_le32(data + 4, 1 + noise() % 40);
    data[10] = (uint8_t)(noise() % 3), data[11] = 0, data[9] = (uint8_t)(1 + noise() % 2);
    data[8] = (uint8_t)(data[10] == FL_PLANES_RUNS ? 1 : 1 + noise() % 4);
    const uint32_t strips = (fl_bytes_le32(data) + FL_PLANES_STRIP - 1) / FL_PLANES_STRIP;
    if (data[10] && size >= FL_PLANES_HEADER + 4 * strips)
        fl_bytes_put_le32(data + FL_PLANES_HEADER + 4 * (strips - 1),
                          (uint32_t)(size - FL_PLANES_HEADER - 4 * strips));
    return size;
}
