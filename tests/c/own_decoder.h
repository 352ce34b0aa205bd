/* What tests and fuzz targets of the own JPEG decoder share. */
#ifndef OWN_DECODER_H
#define OWN_DECODER_H

#include "check.h"
#include "common/cpu.h"
#include "jpeg/baseline.h"
#include "jpeg/entropy.h"

/* NOTE [ baseline: coefficients no encoder writes ]: only libjpeg-turbo's x86 code gives these bytes for
 * them. */
#if defined(__x86_64__)
enum { SAME_RUBBISH = 1 };
#else
enum { SAME_RUBBISH = 0 };
#endif

/* One of each for all inputs: what they keep between files must not show. */
static fl_jpeg_baseline *baseline;
static fl_jpeg_entropy *entropy;

static void create_own_decoder(void) {
    fl_error err;
    if (!baseline)
        CHECK(fl_jpeg_baseline_create(&baseline, &err) == FL_OK &&
              fl_jpeg_entropy_create(&entropy, &err) == FL_OK);
}

/* From here on only plain C, or again all that the CPU has. */
static void use_plain(bool plain) { CHECK(fl_cpu_use(plain ? "plain" : NULL, NULL) == FL_OK); }

#endif
