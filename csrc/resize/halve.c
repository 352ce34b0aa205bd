#include "resize/halve.h"

#include "common/cpu.h"
#include "resize/axis.h"
#include "resize/kernels_avx2.h"
#include "resize/kernels_scalar.h"

fl_code fl_resize_halve(const fl_view *view, fl_buffer *room, fl_view *half, fl_error *err) {
    const fl_resize_kernels *kernels =
        fl_cpu_has(FL_CPU_AVX2) ? fl_resize_kernels_avx2() : &fl_resize_kernels_scalar;
    const uint32_t width = view->width / 2 + view->width % 2, height = view->height / 2 + view->height % 2;
    const size_t stride = (size_t)width * 3;
    const fl_code code = fl_resize_fit(room, height, stride, err);
    if (code) return code;
    uint8_t *out = room->bytes;
    for (uint32_t y = 0; y < height; y++, out += stride) {
        const uint8_t *top = view->pixels + 2 * (size_t)y * view->stride;
        const uint8_t *bottom = 2 * y + 1 < view->height ? top + view->stride : top;
        kernels->halve(top, bottom, out, view->width / 2);
        for (size_t c = 0; c < 3 && view->width % 2; c++) {
            const size_t last = 3 * (size_t)(view->width - 1) + c;
            out[stride - 3 + c] = (uint8_t)((top[last] + bottom[last] + 1) >> 1);
        }
    }
    *half = (fl_view){.pixels = room->bytes,
                      .stride = stride,
                      .width = width,
                      .height = height,
                      .tail = room->room - height * stride};
    return FL_OK;
}
