#include "common/buffer.h"

#include <stdint.h>
#include <stdlib.h>

enum { LINE = 64, PAGE = 4096 };

void fl_buffer_free(fl_buffer *buffer) {
    free(buffer->bytes);
    *buffer = (fl_buffer){NULL, 0};
}

bool fl_buffer_fit(fl_buffer *buffer, size_t count, size_t size, fl_buffer_rule rule) {
    size_t need;
    if (__builtin_mul_overflow(count, size, &need) || need > PTRDIFF_MAX / 2) {
        fl_buffer_free(buffer);
        return false;
    }
    const bool oversized = buffer->room > rule.keep && need < buffer->room / 4;
    if (buffer->bytes && need <= buffer->room && !oversized) return true;
    size_t room = need > rule.keep ? (need + LINE - 1) / LINE * LINE : buffer->bytes ? PAGE : rule.least;
    while (room < need) room *= 2;
    fl_buffer_free(buffer);
    buffer->bytes = aligned_alloc(LINE, room);
    if (!buffer->bytes) return false;
    buffer->room = room;
    return true;
}
