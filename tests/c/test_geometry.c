/* Geometries, boxes and points: known values, mirrors that undo each other, numbers that no box has, and how
 * lists are refused. What torchvision makes of random ones is compared in Python
 * (tests/native/test_objects.py). */
#include "engine/geometry.h"

#include <math.h>
#include <string.h>

#include "check.h"
#include "draws.h"
#include "engine/objects.h"

static const fl_key KEY = {1, 2, 3};

static fl_code resolve(const fl_op *ops, uint32_t count, uint32_t width, uint32_t height, fl_boxes *boxes,
                       fl_geometry *g, fl_error *err) {
    static fl_program program;
    program.count = count;
    memcpy(program.ops, ops, count * sizeof *ops);
    return fl_geometry_resolve(&program, width, height, KEY, boxes, g, err);
}

/* A resize after padding: the canvas is larger than the box, each keeps its own colour. */
static void test_canvas(void) {
    const fl_op ops[] = {
        {.kind = FL_OP_RANDOM_CROP,
         .width = 14,
         .height = 14,
         .padding = {2, 2, 2, 2},
         .fill = {9, 8, 7},
         .mask_fill = 5},
        {.kind = FL_OP_RESIZE, .width = 28, .height = 7},
        {.kind = FL_OP_RANDOM_CROP,
         .width = 30,
         .height = 9,
         .pad_if_needed = true,
         .fill = {1, 1, 1},
         .mask_fill = 5},
    };
    fl_geometry g;
    fl_error err;
    CHECK(resolve(ops, 3, 10, 10, NULL, &g, &err) == FL_OK);
    CHECK(g.resized && g.padded && g.canvas.x == -2 && g.canvas.y == -2 && g.canvas.width == 14 &&
          g.canvas.height == 14);
    CHECK(g.box.x == 0 && g.box.y == 0 && g.box.width == 10 && g.box.height == 10 && g.width == 28 &&
          g.height == 7);
    CHECK(g.canvas_fill[0] == 9 && g.fill[0] == 1 && g.mask_fill == 5 && g.window.width == 30 &&
          g.window.height == 9);
    CHECK(g.step_count == 4 && g.steps[0].kind == FL_STEP_PAD && g.steps[1].kind == FL_STEP_RESIZE &&
          g.steps[2].kind == FL_STEP_PAD);
    int32_t columns[30], rows[9];
    fl_objects_mask(&g, columns, rows);
    for (int i = 0; i < 30; i++) {
        const int64_t at = g.window.x + i;
        CHECK(columns[i] == (at >= 4 && at < 24 ? (int32_t)(at / 2 - 2) : -1));
    }
}

static void test_flips_undo(void) {
    const fl_op ops[] = {{.kind = FL_OP_HFLIP, .p = 1},
                         {.kind = FL_OP_VFLIP, .p = 1},
                         {.kind = FL_OP_VFLIP, .p = 1},
                         {.kind = FL_OP_HFLIP, .p = 1}};
    for (fl_box_format format = FL_BOXES_XYXY; format <= FL_BOXES_XYXYXYXY; format++) {
        float values[8], before[8];
        uint8_t keep = 1;
        for (int i = 0; i < 8; i++) before[i] = values[i] = (float)(noise() % 64);
        fl_boxes boxes = {format, false, 1, values, &keep};
        fl_geometry g;
        fl_error err;
        CHECK(resolve(ops, 4, 64, 32, &boxes, &g, &err) == FL_OK && !g.hflip && !g.vflip && keep);
        for (uint32_t i = 0; i < fl_boxes_columns(format); i++) CHECK(fabsf(values[i] - before[i]) < 1e-3f);
        float points[4] = {3, 4, 5, 6};
        fl_objects_points(&g, FL_POINTS_KEYPOINTS, points, 2, 2);
        CHECK(points[0] == 3 && points[1] == 4 && points[2] == 5 && points[3] == 6);
    }
}

/* Integers as torch's: crops and flips wrap around, resizes truncate; a NaN stays one and is dropped. */
static void test_odd_numbers(void) {
    const fl_op ops[] = {{.kind = FL_OP_CENTER_CROP, .width = 8, .height = 8},
                         {.kind = FL_OP_RESIZE, .width = 12, .height = 4},
                         {.kind = FL_OP_SANITIZE, .min_size = 1, .min_area = 1}};
    int64_t whole[] = {INT64_MIN, INT64_MAX, INT64_MAX, INT64_MIN, 1, 1, 8, 8};
    uint8_t keep[3] = {1, 1, 1};
    fl_boxes boxes = {FL_BOXES_XYXY, true, 2, whole, keep};
    fl_geometry g;
    fl_error err;
    CHECK(resolve(ops, 3, 10, 10, &boxes, &g, &err) == FL_OK);
    CHECK(!keep[0] && keep[1] && whole[4] == 0 && whole[5] == 0 && whole[6] == 10 && whole[7] == 3);
    float real[] = {NAN, 1, 8, 8, 1, 1, 8, INFINITY, 1, 1, 8, 8};
    memset(keep, 1, sizeof keep);
    boxes = (fl_boxes){FL_BOXES_XYXY, false, 3, real, keep};
    CHECK(resolve(ops, 3, 10, 10, &boxes, &g, &err) == FL_OK);
    CHECK(!keep[0] && isnan(real[0]) && keep[1] && real[7] == 4 && keep[2] && real[10] == 10.5f &&
          real[11] == 3.5f);
}

/* Boxes become those of another format in place, from the step on where the list says so; what follows goes
 * on with it. */
static void test_formats(void) {
    const fl_op ops[] = {{.kind = FL_OP_FORMAT, .box_format = FL_BOXES_CXCYWH},
                         {.kind = FL_OP_HFLIP, .p = 1},
                         {.kind = FL_OP_FORMAT, .box_format = FL_BOXES_XYXY},
                         {.kind = FL_OP_RANDOM_RESIZE, .options = {20, 21}, .option_count = 2}};
    float real[] = {1, 2, 3, 4};
    int64_t whole[] = {1, 2, 3, 5};
    uint8_t keep = 1;
    fl_boxes boxes = {FL_BOXES_XYWH, false, 1, real, &keep};
    fl_geometry g;
    fl_error err;
    CHECK(resolve(ops, 4, 10, 20, &boxes, &g, &err) == FL_OK);
    CHECK(boxes.format == FL_BOXES_XYXY && real[0] == 12 && real[1] == 4 && real[2] == 18 && real[3] == 12);
    CHECK(g.window.width == 20 && g.window.height == 40);
    boxes = (fl_boxes){FL_BOXES_XYWH, true, 1, whole, &keep};
    CHECK(resolve(ops, 1, 10, 20, &boxes, &g, &err) == FL_OK);
    CHECK(boxes.format == FL_BOXES_CXCYWH && whole[0] == 2 && whole[1] == 4 && whole[2] == 3 &&
          whole[3] == 5);
    int64_t outside[] = {0, 0, 3, 1};
    boxes = (fl_boxes){FL_BOXES_CXCYWH, true, 1, outside, &keep};
    CHECK(resolve(ops + 2, 1, 10, 20, &boxes, &g, &err) == FL_OK); /* -1.5 and -0.5, truncated */
    CHECK(outside[0] == -1 && outside[1] == 0 && outside[2] == 1 && outside[3] == 0);
}

/* Flips that exchange keypoints undo each other; one that does not exchange counts for nothing. */
static void test_exchange(void) {
    const fl_op ops[] = {{.kind = FL_OP_HFLIP, .p = 1, .exchange = true},
                         {.kind = FL_OP_VFLIP, .p = 1},
                         {.kind = FL_OP_VFLIP, .p = 1, .exchange = true}};
    const uint32_t pairs[] = {0, 2, 4, 3};
    float points[2][5][2], once[2][5][2];
    for (uint32_t i = 0; i < 20; i++)
        points[i / 10][i % 10 / 2][i % 2] = once[i / 10][i % 10 / 2][i % 2] = (float)i;
    fl_geometry g;
    fl_error err;
    for (uint32_t count = 0; count <= 3; count++) {
        CHECK(resolve(ops, count, 8, 8, NULL, &g, &err) == FL_OK);
        CHECK(g.exchanged == (count == 1 || count == 2));
    }
    fl_objects_exchange(&once[0][0][0], 2, 5, 2, pairs, 2);
    for (uint32_t i = 0; i < 2; i++) {
        CHECK(!memcmp(once[i][0], points[i][2], 8) && !memcmp(once[i][2], points[i][0], 8) &&
              !memcmp(once[i][1], points[i][1], 8));
        CHECK(!memcmp(once[i][3], points[i][4], 8) && !memcmp(once[i][4], points[i][3], 8));
    }
    fl_objects_exchange(&once[0][0][0], 2, 5, 2, pairs, 2);
    CHECK(!memcmp(once, points, sizeof once));
}

static void test_refusals(void) {
    const fl_op twice[] = {{.kind = FL_OP_RESIZE, .width = 5, .height = 5},
                           {.kind = FL_OP_LETTERBOX, .width = 9, .height = 9}};
    fl_op iou = {
        .kind = FL_OP_IOU_CROP, .scale = {0.5, 1}, .ratio = {0.5, 2}, .option_count = 1, .trials = 3};
    const fl_op huge = {.kind = FL_OP_ZOOM_OUT, .p = 1, .scale = {1e9, 1e9}};
    float value[8] = {0};
    uint8_t keep = 1;
    fl_boxes boxes = {FL_BOXES_XYWHR, false, 1, value, &keep};
    fl_geometry g;
    fl_error err;
    CHECK(resolve(twice, 2, 8, 8, NULL, &g, &err) == FL_EUNSUPPORTED);
    CHECK(resolve(&iou, 1, 8, 8, NULL, &g, &err) == FL_EARG);
    CHECK(resolve(&iou, 1, 8, 8, &boxes, &g, &err) == FL_EUNSUPPORTED);
    CHECK(resolve(&huge, 1, 8, 8, NULL, &g, &err) == FL_ELIMIT);
    boxes.integer = true;
    CHECK(resolve(&huge, 0, 8, 8, &boxes, &g, &err) == FL_EARG);
    boxes.format = (fl_box_format)6;
    CHECK(resolve(&huge, 0, 8, 8, &boxes, &g, &err) == FL_EARG);
    const fl_op format = {.kind = FL_OP_FORMAT, .box_format = FL_BOXES_XYXY},
                none = {.kind = FL_OP_RANDOM_RESIZE, .option_count = 2};
    boxes = (fl_boxes){FL_BOXES_XYWHR, false, 1, value, &keep};
    CHECK(resolve(&format, 1, 8, 8, &boxes, &g, &err) == FL_EUNSUPPORTED);
    CHECK(resolve(&none, 1, 8, 8, NULL, &g, &err) == FL_EARG);
    iou.option_count = FL_OPTIONS_MAX + 1;
    boxes = (fl_boxes){FL_BOXES_XYXY, false, 1, value, &keep};
    CHECK(resolve(&iou, 1, 8, 8, &boxes, &g, &err) == FL_EARG);
}

int main(void) {
    test_canvas();
    test_flips_undo();
    test_odd_numbers();
    test_formats();
    test_exchange();
    test_refusals();
    printf("geometry: all hold\n");
    return 0;
}
