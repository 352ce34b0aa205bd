/* jpeg/exif: how a camera was held, as metadata of a JPEG tell it. Nothing here decodes; stateless; any
 * thread. */
#ifndef FL_JPEG_EXIF_H
#define FL_JPEG_EXIF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The orientation, 1 .. 8, that the payload of an APP1 segment tells, from "Exif" on; 0 where there is none
 * that holds. */
uint8_t fl_jpeg_exif_orientation(const uint8_t *payload, size_t size);

/* True if it is certain that no reader of metadata turns the picture: neither EXIF nor XMP tell an
 * orientation, or it is 1. If segments are not as the standards have them, or other readers might read them
 * otherwise, it is not certain. */
bool fl_jpeg_exif_upright(const uint8_t *bytes, size_t size);

#endif
