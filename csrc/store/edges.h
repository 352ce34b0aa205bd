/* store/edges: nearest resampling, crops and mirrors along one axis, told by the edges between pixels, so
 * that whole runs of them move at once.
 *
 * A result shows pixels of its source in rising or in falling order, some of them several times, some not at
 * all. So what lies next to each other in the source does so in the result.
 */
#ifndef FL_STORE_EDGES_H
#define FL_STORE_EDGES_H

#include <stdint.h>

/* Fills edges[size + 1] for a result whose place i shows pixel from[i] of a source of `size`. `from` rises or
 * falls, each number below `size`; else the places are wrong, though never above `count`. */
void fl_edges_make(const uint32_t *from, uint32_t count, uint32_t size, uint32_t *edges);

/* Pixels of the result that show [from, to) of the source: [*first, *end). Edges may be NULL: the source as
 * it is. */
static inline void fl_edges_shown(const uint32_t *edges, uint32_t from, uint32_t to, uint32_t *first,
                                  uint32_t *end) {
    const uint32_t a = edges ? edges[from] : from, b = edges ? edges[to] : to;
    *first = a < b ? a : b, *end = a < b ? b : a;
}

#endif
