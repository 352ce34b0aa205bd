/* engine/render: the parts that are made of one stored image: one decode of all that they need, by the
 * decoder of its kind, then a resample of each into its row.
 *
 * One fl_renderer per thread: decoders, resizer and scratch are kept between images.
 *
 * NOTE [ render: several views of one image ]
 * Every part has its own program and draw, so that boxes differ. One decode has the smallest box that holds
 * what all of them need, at the largest DCT scale that any of them needs: both follow from the sample's draws
 * alone. A part is then resampled from its own box of the decoded pixels and sees nothing beyond it: one that
 * needs this scale, and so each with dct_scale=False, gets the bytes that a decode for it alone gives. A part
 * to which a smaller scale is enough is resampled from these pixels halved, once or more often, by means of 2
 * x 2. That costs what its own decode's pixels would cost, and they are as near to the unscaled image.
 */
#ifndef FL_ENGINE_RENDER_H
#define FL_ENGINE_RENDER_H

#include "common/bytes.h"
#include "common/image.h"
#include "common/rng.h"
#include "common/status.h"
#include "engine/decoders.h"
#include "engine/geometry.h"
#include "engine/target.h"

/* Most tensors of one source that are made of a sample, each of one field and by one program. Those of one
 * field lie together; the first field is the sample's first image. */
enum { FL_PARTS_MAX = 64 };

typedef struct fl_part {
    uint16_t field; /* its number in records */
    /* its number in the records of each of the store's shards; NULL: `field` in all */
    const uint16_t *fields;
    /* of the field, for messages; NULL: the first image, of which they speak without a name */
    const char *name;
    fl_program program;
} fl_part;

/* Time and warnings of the last call. */
typedef struct fl_rendered {
    /* when they began, by fl_clock_ns; 0: not at all. To open the image is the decoder's work, as if just
     * before */
    int64_t decode_at, resize_at;
    uint64_t decode_ns, resize_ns;
    uint32_t warnings;
    bool fell_back; /* libjpeg-turbo decoded it */
} fl_rendered;

typedef struct fl_renderer fl_renderer;

fl_code fl_renderer_create(fl_renderer **out, fl_error *err);
void fl_renderer_free(fl_renderer *renderer); /* NULL is allowed */

/* Opens a stored image; the next call of fl_render decodes it, into parts of its form. Its bytes stay valid
 * until then. FL_EUNSUPPORTED: the kind is no image that this version decodes; the decoder's errors. */
fl_code fl_renderer_open(fl_renderer *renderer, const fl_stored *image, uint64_t max_pixels,
                         fl_image_form *form, fl_error *err);

/* Takes pixels in place of an image to open. They stay valid until fl_render has returned. */
void fl_renderer_give(fl_renderer *renderer, const fl_view *image);

/* Decodes all of the image that is open, of RGB, and takes these pixels. */
fl_code fl_renderer_whole(fl_renderer *renderer, fl_view *image, fl_error *err);

/* What the last fl_renderer_open took; the next fl_render adds it to its decode. */
int64_t fl_renderer_opening_ns(const fl_renderer *renderer);

/* Makes parts[0..count) of the image that was opened or given into row `row` of their targets. `boxes`: those
 * of the sample, which the first part's geometry moves; NULL: none. FL_ERECORD when an image becomes another
 * size than its target. */
fl_code fl_render(fl_renderer *renderer, const fl_part *parts, uint32_t count, fl_key key, fl_boxes *boxes,
                  const fl_target *targets, uint32_t row, fl_rendered *report, fl_error *err);

/* The geometry that the last fl_render resolved for its first part; valid until the next one. */
const fl_geometry *fl_renderer_geometry(const fl_renderer *renderer);

#endif
