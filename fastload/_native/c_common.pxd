# Common to all parts: status, borrowed bytes, CPU features, checksums, random numbers, images, the clock.
# Declarations of csrc/common.

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

cdef extern from "common/status.h" nogil:
    ctypedef enum fl_code:
        FL_OK
        FL_ENOMEM
        FL_EARG
        FL_EIO
        FL_ETIMEOUT
        FL_ECLOSED
        FL_EFULL
        FL_EINTR
        FL_EFORK
        FL_ESHARD
        FL_ENOTFOUND
        FL_ERECORD
        FL_ECHECKSUM
        FL_EJPEG
        FL_ETRUNCATED
        FL_ELIMIT
        FL_EUNSUPPORTED
        FL_ERESOURCE
        FL_EREMOTE
    ctypedef struct fl_error:
        fl_code code
        int sys
        char text[240]
    fl_code fl_fail(fl_error *, fl_code, const char *, ...)

cdef extern from "common/buffer.h" nogil:
    ctypedef struct fl_buffer:
        void *bytes
        size_t room
    ctypedef struct fl_buffer_rule:
        size_t least, keep
    bint fl_buffer_fit(fl_buffer *buffer, size_t count, size_t size, fl_buffer_rule rule)
    void fl_buffer_free(fl_buffer *buffer)

cdef extern from "common/cpu.h" nogil:
    enum:
        FL_CPU_NAMES
    fl_code fl_cpu_use(const char *, fl_error *)
    void fl_cpu_names(char *)

cdef extern from "common/image.h" nogil:
    enum:
        FL_IMAGE_SIDE_MAX
    ctypedef struct fl_view:
        const uint8_t *pixels
        size_t stride
        uint32_t width, height
        size_t tail
        uint8_t channels, depth
    ctypedef struct fl_box:
        uint32_t x, y, width, height
    ctypedef enum fl_dtype:
        FL_U8
        FL_F32
        FL_F16
        FL_BF16
        FL_U16
    ctypedef enum fl_layout:
        FL_HWC
        FL_CHW
        FL_PATCHES
    ctypedef struct fl_patches:
        uint32_t side, merge, frames
    ctypedef struct fl_sink:
        void *data
        uint32_t width, height
        fl_dtype dtype
        fl_layout layout
        const void *lut
        bint hflip, vflip
        uint8_t channels, depth
        uint32_t pitch
        size_t plane
        fl_patches patches

cdef extern from "common/rng.h" nogil:
    ctypedef struct fl_key:
        uint64_t seed
        uint32_t epoch
        uint64_t index
    ctypedef struct fl_rng:
        pass
    fl_rng fl_rng_start(fl_key, uint16_t)
    uint32_t fl_rng_word(fl_rng *)

cdef extern from "common/bytes.h" nogil:
    ctypedef struct fl_span:
        const uint8_t *bytes
        size_t size
    uint32_t fl_bytes_le32(const uint8_t *)
    void fl_bytes_put_le16(uint8_t *, uint32_t)
    void fl_bytes_put_le32(uint8_t *, uint32_t)

cdef extern from "common/crc32c.h" nogil:
    uint32_t fl_crc32c(uint32_t crc, const void *bytes, size_t size)

cdef extern from "common/clock.h" nogil:
    int64_t fl_clock_ns()
