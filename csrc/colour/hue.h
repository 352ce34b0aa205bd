/* colour/hue: turns the hue of RGB pixels, as Pillow does by way of its mode HSV. */
#ifndef FL_COLOUR_HUE_H
#define FL_COLOUR_HUE_H

#include <stddef.h>
#include <stdint.h>

typedef enum fl_colour_band { FL_COLOUR_H, FL_COLOUR_S, FL_COLOUR_V } fl_colour_band;

/* In place: to HSV, H + shift modulo 256, and back to RGB. Any thread, as below. */
void fl_colour_hue(uint8_t *rgb, size_t pixels, uint8_t shift);

/* A band of the mode HSV, one byte a pixel. */
void fl_colour_hsv(const uint8_t *rgb, size_t pixels, fl_colour_band band, uint8_t *out);

#endif
