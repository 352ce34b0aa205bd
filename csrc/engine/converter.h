/* engine/converter: threads that make forms of image files that are decoded faster, the DCT form of JPEGs and
 * the pixels of PNGs, with the time that nobody wants.
 *
 * NOTE [ converter: time that nobody wants ]
 * Each image that an epoch proved sound is read once more, coded, compared with what it was made of, and kept
 * (store/kept.h); later epochs decode that in half the time, or less. It costs as much as an image of an epoch
 * does. So these threads have the least priority, and convert only while all pools of the process rest: all
 * batches that were asked for are made, and the loop is busy with one. A loop that waits for its batches sees
 * nothing of them. Each thread has the images of its own number, and goes through them again and again, after
 * longer and longer pauses where it found none.
 */
#ifndef FL_ENGINE_CONVERTER_H
#define FL_ENGINE_CONVERTER_H

#include "common/status.h"
#include "engine/pipeline.h"

typedef struct fl_converter fl_converter;

/* Starts as many threads, which convert the images of those sources of which files are kept, while the pool
 * and all others rest. Pool and sources outlive them. FL_ERESOURCE: the system starts none; FL_ENOMEM. */
fl_code fl_converter_start(fl_converter **out, fl_pool *pool, const fl_source *const *sources, uint32_t count,
                           uint32_t threads, fl_error *err);

/* Ends the threads, after the image that each is at, and frees all. NULL is allowed. In a forked child, where
 * they do not exist, only memory is freed. */
void fl_converter_free(fl_converter *converter);

#endif
