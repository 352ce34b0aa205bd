/* engine/shrink: an image of fewer pixels, in the place of its file: what everybody makes by hand before
 * training at 224.
 *
 * NOTE [ shrink: one image for good ]
 * An image whose shorter side is more than asked for becomes a JPEG of quality 95 with just that, antialiased
 * and bilinear, its longer side as torchvision's Resize has it. All that is made of the image is made of this
 * JPEG, from the first time on, whether it is kept or not: so pixels do not depend on what a cache holds. */
#ifndef FL_ENGINE_SHRINK_H
#define FL_ENGINE_SHRINK_H

#include "common/bytes.h"
#include "common/image.h"
#include "common/status.h"

typedef struct fl_shrinker fl_shrinker; /* one per thread */

fl_code fl_shrinker_create(fl_shrinker **out, fl_error *err);
void fl_shrinker_free(fl_shrinker *shrinker); /* NULL is allowed */

/* Whether an image of that size is made smaller: its shorter side is longer, and a JPEG may have the other. */
bool fl_shrink_applies(uint32_t width, uint32_t height, uint32_t side);

/* The JPEG of an image to which it applies, valid until the next call. */
fl_code fl_shrink(fl_shrinker *shrinker, const fl_view *image, uint32_t side, fl_span *jpeg, fl_error *err);

#endif
