/* fl_resize: the properties of resize_scenes.h, and what is refused. A failure prints the case's seed; run
 * with it as the argument to see that case alone. */
#include "resize_scenes.h"

/* What does not fit is FL_EARG with a text, and writes nothing. */
static void test_what_does_not_fit_is_refused(void) {
    static const struct {
        double x, y, width, height;
        uint32_t out_width, out_height;
        fl_box window;
        uint32_t at_x, at_y;
    } cases[] = {
        {-1, 0, 10, 10, 8, 8, {0, 0, 8, 8}, 0, 0},         {0, 0, 10.5, 10, 8, 8, {0, 0, 8, 8}, 0, 0},
        {0, NAN, 10, 10, 8, 8, {0, 0, 8, 8}, 0, 0},        {0, 0, 10, INFINITY, 8, 8, {0, 0, 8, 8}, 0, 0},
        {0, 0, 0, 10, 8, 8, {0, 0, 8, 8}, 0, 0},           {0, 0, 10, 10, 0, 8, {0, 0, 0, 8}, 0, 0},
        {0, 0, 10, 10, 8, 8, {1, 0, 8, 8}, 0, 0},          {0, 0, 10, 10, 8, 8, {0, 0, 8, 9}, 0, 0},
        {0, 0, 10, 10, 8, 8, {0xFFFFFFFF, 0, 2, 8}, 0, 0}, {0, 0, 10, 10, 8, 8, {0, 0, 8, 8}, 1, 0},
        {0, 0, 10, 10, 8, 8, {0, 0, 8, 8}, 0, 0xFFFFFFFF}, {0, 0, 10, 10, 0xFFFFFFFF, 8, {0, 0, 8, 8}, 0, 0},
    };
    scene s;
    make_view(&s, 10, 10);
    make_sink(&s, FL_U8, FL_HWC, 8, 8);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        s.spec = (fl_resize_spec){cases[i].x,
                                  cases[i].y,
                                  cases[i].width,
                                  cases[i].height,
                                  cases[i].out_width,
                                  cases[i].out_height,
                                  cases[i].window,
                                  cases[i].at_x,
                                  cases[i].at_y,
                                  FL_RESIZE_BILINEAR,
                                  true};
        fl_error err = {FL_OK, 0, ""};
        CHECK(fl_resize(resizer, &s.view, &s.spec, &s.sink, &err) == FL_EARG, "case %zu", i);
        CHECK(err.code == FL_EARG && err.text[0] != '\0', "case %zu", i);
        for (size_t b = 0; b < s.bytes; b++) CHECK(((uint8_t *)s.sink.data)[b] == 0xA5, "case %zu wrote", i);
    }
    free_scene(&s);
}

/* Patches that the image does not fill, or that have no side, no frame or other than three channels. */
static void test_patches_that_are_refused(void) {
    static const fl_patches wrong[] = {{3, 1, 1}, {2, 3, 1}, {0, 2, 1}, {4, 0, 1}, {4, 2, 0}};
    scene s;
    make_view(&s, 10, 10);
    make_sink(&s, FL_U8, FL_HWC, 8, 8);
    s.spec = (fl_resize_spec){0, 0, 10, 10, 8, 8, {0, 0, 8, 8}, 0, 0, FL_RESIZE_BILINEAR, true};
    s.sink.layout = FL_PATCHES;
    fl_error err;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        s.sink.patches = wrong[i];
        CHECK(fl_resize(resizer, &s.view, &s.spec, &s.sink, &err) == FL_EARG, "case %zu", i);
    }
    s.sink.patches = (fl_patches){4, 2, 1};
    CHECK(fl_resize(resizer, &s.view, &s.spec, &s.sink, &err) == FL_OK, "%s", err.text);
    free_scene(&s);
}

static void run(uint64_t seed) {
    check_seed = seed;
    noise_state = seed * 0x9E3779B97F4A7C15u;
    for (int i = 0; i < RESIZE_PROPERTIES; i++) resize_properties[i]();
}

int main(int argc, char **argv) {
    fl_error err;
    CHECK(fl_resizer_create(&resizer, &err) == FL_OK, "%s", err.text);
    if (argc > 1) {
        run(strtoull(argv[1], NULL, 10));
    } else {
        for (uint64_t seed = 1; seed <= 4000; seed++) run(seed);
    }
    test_what_does_not_fit_is_refused();
    test_patches_that_are_refused();
    fl_resizer_free(resizer);
    char cpu[FL_CPU_NAMES];
    fl_cpu_names(cpu);
    printf("resize: ok (%s)\n", cpu);
    return 0;
}
