/* fl_augment_run: the same bytes on every path of the CPU and by whatever memory was used before, for any ops on any
 * size; a blur that reflects too far is an error. The images are Pillow's in
 * tests/dataset/test_native_augmentations.py. */
#include "engine/augment.h"

#include <string.h>

#include "check.h"
#include "colour/warp.h"
#include "common/cpu.h"
#include "draws.h"

enum { ROUNDS = 3000 / THIN };

static const char *const paths[] = {"plain", "avx2", ""};

static void set_range(double *options, double low, double high) {
    options[0] = low + unit() * (high - low);
    options[1] = options[0] + unit() * (high - options[0]);
}

static fl_op some_op(uint16_t stream) {
    fl_op op = {.kind = (fl_op_kind)between(FL_OP_JITTER, FL_OP_AUTO_AUGMENT), .stream = stream, .p = unit()};
    for (int c = 0; c < 3; c++) op.fill[c] = (uint8_t)noise();
    op.warp = (int)below(FL_COLOUR_BICUBIC + 1);
    double *options = op.options;
    op.option_count = 25;
    if (op.kind == FL_OP_JITTER)
        for (int i = 0; i < 4; i++) set_range(options + 2 * i, i == 3 ? -0.5 : 0, i == 3 ? 0.5 : 3);
    if (op.kind == FL_OP_SOLARIZE || op.kind == FL_OP_SHARPNESS) options[0] = unit() * 300 - 20;
    if (op.kind == FL_OP_POSTERIZE) options[0] = between(1, 8);
    if (op.kind == FL_OP_GAUSSIAN_BLUR) {
        options[0] = 2 * below(9) + 1, options[1] = 2 * below(9) + 1;
        set_range(options + 2, 0.1, 4);
    }
    if (op.kind == FL_OP_ROTATE) {
        set_range(options, -400, 400);
        if (below(3) == 0) options[0] = options[1] = 90.0 * (double)below(9) - 360;
    }
    if (op.kind == FL_OP_AFFINE) {
        set_range(options, -200, 200);
        options[2] = unit(), options[3] = unit();
        set_range(options + 4, 0.05, 4), set_range(options + 6, -95, 95), set_range(options + 8, -95, 95);
    }
    if (op.kind == FL_OP_PERSPECTIVE) options[0] = unit();
    if (op.kind == FL_OP_AUTO_AUGMENT)
        for (int i = 0; i < 25; i++) options[i] = (double)(noise() & 0xFFFFFF);
    op.policy = (fl_policy){.count = below(4),
                            .bins = between(2, 40),
                            .shear = unit(),
                            .rotate = unit() * 135,
                            .blend = unit(),
                            .posterize = unit() * 6,
                            .shares = below(2) == 1};
    op.policy.bin = below(op.policy.bins);
    op.policy.translate = op.policy.shares ? unit() : unit() * 200;
    return op;
}

/* A blur that reflects beyond the image, or a perspective of one that has no inside. */
static bool may_fail(const fl_program *program, uint32_t width, uint32_t height) {
    for (uint32_t i = 0; i < program->count; i++) {
        const fl_op *op = &program->ops[i];
        if (op->kind == FL_OP_PERSPECTIVE && (width < 4 || height < 4)) return true;
        if (op->kind == FL_OP_GAUSSIAN_BLUR &&
            ((uint32_t)op->options[0] / 2 >= width || (uint32_t)op->options[1] / 2 >= height))
            return true;
    }
    return false;
}

static void results_follow_from_key_and_pixels(fl_augmenter *used) {
    const uint32_t width = between(1, below(8) ? 40 : 400), height = between(1, 50);
    const size_t size = (size_t)width * height * 3;
    const fl_key key = {noise(), (uint32_t)noise(), noise()};
    fl_program program = {.count = between(0, 5)};
    for (uint32_t i = 0; i < program.count; i++) program.ops[i] = some_op((uint16_t)(0x8000 + i));
    CHECK(fl_augment_needed(&program) == (program.count > 0));
    uint8_t *image = malloc(size), *first = malloc(size);
    CHECK(image && first);
    for (size_t i = 0; i < size; i++) image[i] = below(4) ? (uint8_t)noise() : 0;
    fl_code code = FL_OK;
    for (int path = 0; path < 3; path++) {
        fl_augmenter fresh = {.image = {NULL, 0}}, *augmenter = path == 1 ? used : &fresh;
        fl_error err = {.code = FL_OK};
        CHECK(fl_cpu_use(paths[path], NULL) == FL_OK);
        CHECK(fl_augment_begin(augmenter, width, height, &err) == FL_OK);
        memcpy(augmenter->image.bytes, image, size);
        const fl_code now = fl_augment_run(augmenter, &program, key, width, height, &err);
        CHECK(now == FL_OK || (now == FL_EARG && may_fail(&program, width, height)));
        if (path) CHECK(now == code && (now || memcmp(augmenter->image.bytes, first, size) == 0));
        code = now;
        memcpy(first, augmenter->image.bytes, size);
        fl_augment_free(&fresh);
    }
    free(image), free(first);
}

static void large_images_are_refused(void) {
    fl_augmenter augmenter = {.image = {NULL, 0}};
    fl_error err = {.code = FL_OK};
    CHECK(fl_augment_begin(&augmenter, 1 << 16, 1 << 15, &err) == FL_ELIMIT);
    CHECK(!augmenter.image.bytes);
}

int main(void) {
    fl_augmenter used = {.image = {NULL, 0}};
    large_images_are_refused();
    for (int i = 0; i < ROUNDS; i++) {
        check_seed = noise_state;
        results_follow_from_key_and_pixels(&used);
    }
    fl_augment_free(&used);
    return 0;
}
