/* engine/augment: the ops of a program that change a finished image's colours, or warp it: what each draws for a sample,
 * and what it does to the pixels.
 *
 * NOTE [ augment: one set of draws, two places ]
 * fastload/augment has the same ops for whole batches on a device. Both take the same words of the same stream in the
 * same order, so that a sample's factors, orders, angles and kinds do not depend on where its ops run. Pixels do: here
 * they are those of Pillow, bit for bit, there those of torchvision's kernels for tensors. (GaussianBlur is
 * torchvision's in both places, which has no other of that name; see colour/gaussian.h.)
 */
#ifndef FL_ENGINE_AUGMENT_H
#define FL_ENGINE_AUGMENT_H

#include <stdbool.h>
#include <stdint.h>

#include "common/buffer.h"
#include "common/rng.h"
#include "common/status.h"
#include "engine/geometry.h"

/* Memory of one thread's work; zeroed at first. */
typedef struct fl_augmenter {
    fl_buffer image; /* the image in work */
    fl_buffer warped; /* what a warp makes of it; then they change places */
    fl_buffer scratch;
} fl_augmenter;

void fl_augment_free(fl_augmenter *augmenter); /* idempotent */

/* True if a program has ops that fl_augment_run does. */
bool fl_augment_needed(const fl_program *program);

/* Room for an image of 8-bit RGB whose rows follow each other: augmenter->image. FL_ELIMIT where it is too large. */
fl_code fl_augment_begin(fl_augmenter *augmenter, uint32_t width, uint32_t height, fl_error *err);

/* Does a program's ops, drawn for the key's sample, to the image of that size, which is augmenter->image before and
 * after. FL_EARG where an op cannot be done to it. */
fl_code fl_augment_run(fl_augmenter *augmenter, const fl_program *program, fl_key key, uint32_t width,
                       uint32_t height, fl_error *err);

#endif
