/* engine/fields: what else of a sample's record goes into its row, beside the image: masks, boxes, keypoints,
 * instances and rows of any number, through the geometry that was drawn for the image.
 *
 * NOTE [ fields: one row ]
 * fl_fields_open finds the items in the record and checks them: lengths, numbers of rows. The geometry is
 * then resolved with fl_fields_boxes, the first boxes of the sample, on which a crop may depend; other boxes
 * go through the same steps afterwards. fl_fields_write writes what comes out. What drops a box drops the
 * rows of all items that are `of` its boxes; the rest stay in order. A record has exactly as many rows as its
 * dataset's column says, so that the room of a batch is known before a record is read.
 *
 * fl_item    borrowed: a part of the fl_source.
 * fl_room    of the batch; row `i` of it is written by the thread that makes row i.
 * fl_fields  one thread's memory for the sample in work.
 */
#ifndef FL_ENGINE_FIELDS_H
#define FL_ENGINE_FIELDS_H

#include "common/bytes.h"
#include "common/status.h"
#include "engine/boxes.h"
#include "engine/geometry.h"
#include "engine/target.h"
#include "store/store.h"

enum { FL_ITEMS_MAX = 64, FL_ITEM_ALONE = -1 };

typedef enum fl_item_kind {
    FL_ITEM_MASK = 0, /* labels, as large as the image */
    FL_ITEM_BOXES = 1,
    FL_ITEM_KEYPOINTS = 2,
    FL_ITEM_INSTANCES = 3, /* any number of binary masks, as large as the image: bytes of 0 and 1 */
    FL_ITEM_ROWS = 4, /* any number of rows, which no geometry moves */
    FL_ITEM_POLYGONS = 5 /* any number of outlines, each of any number of parts */
} fl_item_kind;

typedef struct fl_item {
    fl_item_kind kind;
    const char *name; /* for messages */
    uint16_t field; /* its number in records */
    /* its number in the records of each of the store's shards; NULL: `field` in all */
    const uint16_t *fields;
    const int32_t *counts; /* how many rows each of the store's samples has; not of masks */
    const fl_tables *counted; /* the same in tables, as i32 little-endian, where `counts` is NULL */
    /* bytes of a row as it is stored; of a mask, of a label; of instances and polygons those of its first
     * length, 4 */
    uint32_t unit;
    fl_box_format format; /* of boxes */
    bool integer;
    uint32_t columns; /* of keypoints, numbers of a point: 2 or 3 */
    /* [pair_count][2] numbers of keypoints that flips exchange where the program says so */
    const uint32_t *pairs;
    uint32_t pair_count;
    int32_t of; /* the item of boxes whose objects its rows are; FL_ITEM_ALONE */
    bool hidden; /* the geometry needs it, and no batch has it */
} fl_item;

/* Form of one item in all rows of a batch. */
typedef struct fl_room {
    /* of masks where they lie; of instances how one of them lies: the size and pitch of a row's image */
    fl_target target;
    /* not of masks: row i's bytes lie at data + start[i] and end before data + start[i + 1]; those beyond
     * its rows are zeros */
    uint8_t *data;
    uint64_t *start; /* [rows + 1] */
    uint32_t *kept; /* [rows]: how many of its rows were kept; 0 where the row failed */
} fl_room; /* Polygons lie in it as engine/polygons.h writes them; those of a row that failed are none. */

typedef struct fl_fields fl_fields;

fl_code fl_fields_create(fl_fields **out, fl_error *err);
void fl_fields_free(fl_fields *fields); /* NULL is allowed */

/* Checks that a source's items are sound, on which everything below relies. FL_EARG. */
fl_code fl_fields_check(const fl_item *items, uint32_t count, fl_error *err);

/* Finds `count` items in sample index's record, which passed fl_record_check and stays valid until
 * fl_fields_write is done. FL_ERECORD. */
fl_code fl_fields_open(fl_fields *fields, const fl_item *items, uint32_t count, const fl_store *store,
                       uint64_t index, fl_span record, fl_error *err);

/* The boxes of the record that was opened as they were before a geometry moved them, for a further image.
 * FL_ENOMEM. */
fl_code fl_fields_renew(fl_fields *fields, fl_error *err);

/* The first boxes of the record that was opened, to be resolved with; NULL: there are none. */
fl_boxes *fl_fields_boxes(fl_fields *fields);

/* Writes the items that were opened into row `row` of their rooms, as the geometry has them of an image of
 * width x height. FL_ERECORD where one does not hold, is of another size than the image, or needs more than
 * its room; FL_EARG; FL_EUNSUPPORTED for rotated boxes whose format is to be converted. */
fl_code fl_fields_write(fl_fields *fields, const fl_geometry *g, uint32_t width, uint32_t height,
                        const fl_room *rooms, uint32_t row, fl_error *err);

/* Bytes of the room that a row needs for sample `index` of the store, of an item that is no mask; `unit`: of
 * one of its rows in the batch. Of polygons, which no column counts, what its record has: a multiple of 8.
 * FL_ERECORD where the column says more rows than the record can have; FL_ELIMIT. */
fl_code fl_fields_bytes(const fl_item *item, const fl_store *store, uint64_t index, uint64_t unit,
                        uint64_t *bytes, fl_error *err);

/* Zeros for row `row`, which failed. */
void fl_fields_clear(const fl_item *items, uint32_t count, const fl_room *rooms, uint32_t row);

#endif
