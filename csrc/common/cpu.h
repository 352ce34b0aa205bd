/* common/cpu: which of the CPU's later instructions this process uses.
 *
 * They are all that the CPU has, unless fl_cpu_use says otherwise, as the native module does with the
 * environment variable FASTLOAD_CPU when it is loaded. The answer may change between two calls of a function,
 * never during one: each asks once.
 */
#ifndef FL_COMMON_CPU_H
#define FL_COMMON_CPU_H

#include <stdbool.h>

#include "common/status.h"

typedef enum fl_cpu_feature {
    FL_CPU_CRC32C = 1, /* x86-64: SSE4.2; aarch64: the CRC32 extension */
    FL_CPU_BMI2 = 2,   /* and BMI1 */
    FL_CPU_AVX2 = 4,
    FL_CPU_FMA = 8,
    FL_CPU_NEON = 16,
    FL_CPU_PDEP = 32,  /* BMI2 whose pdep and pext are not microcode */
    FL_CPU_AVX512 = 64, /* F, BW, DQ, VL, VBMI and VBMI2 */
    FL_CPU_F16C = 128
} fl_cpu_feature;

/* True if all these features are in use. */
bool fl_cpu_has(unsigned features);

/* Restricts what is used to the features in a list of names, separated by commas: those of fl_cpu_feature in
 * small letters. "plain" names none of them; NULL or "" all. What the CPU lacks is never used. FL_EARG for
 * another name, with all names. Any thread, any time. */
fl_code fl_cpu_use(const char *names, fl_error *err);

enum { FL_CPU_NAMES = 128 }; /* room for all names, and what separates them */

/* The names of the features in use, separated by commas, or "plain". */
void fl_cpu_names(char out[FL_CPU_NAMES]);

#endif
