#include "store/edges.h"

#include <stdbool.h>

void fl_edges_make(const uint32_t *from, uint32_t count, uint32_t size, uint32_t *edges) {
    const bool falling = count && from[0] > from[count - 1];
    uint32_t at =
        falling ? count : 0; /* places that show pixels before i; falling, that show i or those after it */
    for (uint32_t i = 0; i < size; i++) {
        if (falling)
            while (at > 0 && from[at - 1] < i) at--;
        else
            while (at < count && from[at] < i) at++;
        edges[i] = at;
    }
    edges[size] = falling ? 0 : count;
}
