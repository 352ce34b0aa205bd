/* jpeg/baseline_idct: the numbers of the inverse DCTs, which every set of kernels shares.
 *
 * Source: C. Loeffler, A. Ligtenberg, G. Moschytz, "Practical fast 1-D DCT algorithms with 11
 * multiplications" (ICASSP'89), in the integer form and with the roundings of libjpeg's "islow" method and
 * its reductions.
 */
#ifndef FL_JPEG_BASELINE_IDCT_H
#define FL_JPEG_BASELINE_IDCT_H

/* Fraction bits of a factor, and of what the first pass leaves. */
enum { FL_JPEG_CONST_BITS = 13, FL_JPEG_PASS1_BITS = 2 };

/* round(x * 2^13), named by x, a sum of cosines times the square root of 2. */
enum {
    FL_JPEG_F_0_211164243 = 1730,
    FL_JPEG_F_0_298631336 = 2446,
    FL_JPEG_F_0_390180644 = 3196,
    FL_JPEG_F_0_509795579 = 4176,
    FL_JPEG_F_0_541196100 = 4433,
    FL_JPEG_F_0_601344887 = 4926,
    FL_JPEG_F_0_720959822 = 5906,
    FL_JPEG_F_0_765366865 = 6270,
    FL_JPEG_F_0_850430095 = 6967,
    FL_JPEG_F_0_899976223 = 7373,
    FL_JPEG_F_1_061594337 = 8697,
    FL_JPEG_F_1_175875602 = 9633,
    FL_JPEG_F_1_272758580 = 10426,
    FL_JPEG_F_1_451774981 = 11893,
    FL_JPEG_F_1_501321110 = 12299,
    FL_JPEG_F_1_847759065 = 15137,
    FL_JPEG_F_1_961570560 = 16069,
    FL_JPEG_F_2_053119869 = 16819,
    FL_JPEG_F_2_172734803 = 17799,
    FL_JPEG_F_2_562915447 = 20995,
    FL_JPEG_F_3_072711026 = 25172,
    FL_JPEG_F_3_624509785 = 29692
};

#endif
