/* common/deflate: a bound of the format, for what is inflated from hostile bytes. */
#ifndef FL_COMMON_DEFLATE_H
#define FL_COMMON_DEFLATE_H

enum {
    FL_DEFLATE_RATIO_MOST = 1032 /* bytes that deflate makes of one at the most (zlib's technical details) */
};

#endif
