/* store/facts: what is learnt of images that nobody has checked before they are read.
 *
 * NOTE [ facts: what is learnt ]
 * The first reading of an image proves that it is sound, and makes its entropy index on the way
 * (jpeg/entropy.h). Both are kept: the proof in 8 bytes an image, the index as far as the memory that was
 * given goes. They hold for the image as it was, which a stamp tells from what it becomes. An image with
 * another stamp is proved anew, and read without an index. Slots of the table are written once and never freed
 * before the table is; a stamp is published after its index. With fl_facts_keep() both are kept on a disk
 * instead, as far as there is room. Any thread.
 */
#ifndef FL_STORE_FACTS_H
#define FL_STORE_FACTS_H

#include <stdbool.h>

#include "common/buffer.h"
#include "common/bytes.h"
#include "common/status.h"
#include "store/kept.h"

typedef struct fl_facts fl_facts;

/* Of `count` images. `room`: bytes of memory that indexes may take. FL_ENOMEM. */
fl_code fl_facts_create(fl_facts **out, uint64_t count, size_t room, fl_error *err);
void fl_facts_free(fl_facts *facts); /* NULL is allowed */

/* Keeps them in `kept`, of as many images, which outlives them. Before anything is learnt. */
void fl_facts_keep(fl_facts *facts, fl_kept *kept);

/* True if the image with that stamp is known to be sound; *found is then its entropy index (size 0: none),
 * valid as long as `facts`, and until the buffer is used again. index < count. */
bool fl_facts_known(const fl_facts *facts, uint64_t index, uint64_t stamp, fl_buffer *buffer, fl_span *found);

/* The stamp with which an image was last known to be sound; 0: it was not. index < count. */
uint64_t fl_facts_stamp(const fl_facts *facts, uint64_t index);

/* Notes that it is, and its index, as far as there is room. The stamp is not 0. */
void fl_facts_learn(fl_facts *facts, uint64_t index, uint64_t stamp, fl_span found);

/* Images with an index in memory, and the bytes that they take. */
void fl_facts_learnt(const fl_facts *facts, uint64_t *indexes, uint64_t *bytes);

uint32_t fl_facts_live(void); /* of this process, made and not yet freed: a test ends with zero */

#endif
