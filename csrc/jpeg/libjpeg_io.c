#include "jpeg/libjpeg_io.h"

#include <stdarg.h>
#include <string.h>

#include <jerror.h>

static fl_libjpeg_io *io_of(j_common_ptr cinfo) { return (fl_libjpeg_io *)cinfo->client_data; }

static fl_code code_of(int message) {
    switch (message) {
    case JERR_OUT_OF_MEMORY: return FL_ENOMEM;
    case JERR_IMAGE_TOO_BIG:
    case JERR_WIDTH_OVERFLOW: return FL_ELIMIT;
    case JERR_INPUT_EMPTY:
    case JERR_INPUT_EOF: return FL_ETRUNCATED;
#if JPEG_LIB_VERSION < 70 /* the code is gone from the libjpeg 7 and 8 interfaces, which Ubuntu's build has */
    case JERR_ARITH_NOTIMPL:
#endif
    case JERR_BAD_PRECISION:
    case JERR_CCIR601_NOTIMPL:
    case JERR_CONVERSION_NOTIMPL:
    case JERR_FRACT_SAMPLE_NOTIMPL:
    case JERR_NOTIMPL:
    case JERR_NOT_COMPILED:
    case JERR_SOF_UNSUPPORTED: return FL_EUNSUPPORTED;
    default: return FL_EJPEG;
    }
}

static void error_exit(j_common_ptr cinfo) {
    char text[JMSG_LENGTH_MAX];
    cinfo->err->format_message(cinfo, text);
    fl_libjpeg_io_fail(io_of(cinfo), code_of(cinfo->err->msg_code), "libjpeg: %s", text);
}

__attribute__((noreturn)) static void truncated(fl_libjpeg_io *io) {
    fl_libjpeg_io_fail(io, FL_ETRUNCATED, "the JPEG is cut off: its %zu bytes end before its picture does",
                       io->size);
}

static void emit_message(j_common_ptr cinfo, int level) {
    fl_libjpeg_io *io = io_of(cinfo);
    if (level >= 0) {
        if (cinfo->err->msg_code == JTRC_SOF) io->frame = cinfo->err->msg_parm.i[0];
        return;
    }
    if (cinfo->err->msg_code == JWRN_HIT_MARKER && io->ended) truncated(io);
    if (io->warnings == 0) {
        char text[JMSG_LENGTH_MAX];
        cinfo->err->format_message(cinfo, text);
        snprintf(io->first, sizeof io->first, "%s", text);
    }
    if (io->warnings < UINT32_MAX) io->warnings++;
}

static void output_message(j_common_ptr cinfo) { (void)cinfo; /* nothing of ours prints */ }

static void no_source_work(j_decompress_ptr cinfo) { (void)cinfo; }

static boolean fill_input_buffer(j_decompress_ptr cinfo) {
    static const JOCTET end[2] = {0xFF, JPEG_EOI};
    fl_libjpeg_io *io = io_of((j_common_ptr)cinfo);
    if (!io->end_allowed || io->ended) truncated(io);
    cinfo->err->msg_code = JWRN_JPEG_EOF;
    cinfo->err->emit_message((j_common_ptr)cinfo, -1);
    io->ended = true;
    io->source.next_input_byte = end;
    io->source.bytes_in_buffer = sizeof end;
    return TRUE;
}

static void skip_input_data(j_decompress_ptr cinfo, long count) {
    fl_libjpeg_io *io = io_of((j_common_ptr)cinfo);
    if (count <= 0) return;
    if ((size_t)count > io->source.bytes_in_buffer) truncated(io);
    io->source.next_input_byte += count;
    io->source.bytes_in_buffer -= (size_t)count;
}

static void count_scans(j_common_ptr cinfo) {
    j_decompress_ptr c = (j_decompress_ptr)cinfo;
    if (c->is_decompressor && c->input_scan_number > FL_JPEG_SCANS_MAX)
        fl_libjpeg_io_fail(io_of(cinfo), FL_EJPEG,
                           "the JPEG has more than %d scans: it is made to waste time", FL_JPEG_SCANS_MAX);
}

void fl_libjpeg_io_init(fl_libjpeg_io *io, j_common_ptr cinfo) {
    memset(io, 0, sizeof *io);
    cinfo->err = jpeg_std_error(&io->errors);
    cinfo->client_data = io;
    io->errors.error_exit = error_exit;
    io->errors.emit_message = emit_message;
    io->errors.output_message = output_message;
    io->source.init_source = no_source_work;
    io->source.fill_input_buffer = fill_input_buffer;
    io->source.skip_input_data = skip_input_data;
    io->source.resync_to_restart = jpeg_resync_to_restart;
    io->source.term_source = no_source_work;
    io->progress.progress_monitor = count_scans;
}

void fl_libjpeg_io_begin(fl_libjpeg_io *io, fl_error *err) {
    io->err = err;
    io->code = FL_OK;
}

void fl_libjpeg_io_source(fl_libjpeg_io *io, j_decompress_ptr cinfo, const uint8_t *bytes, size_t size) {
    io->source.next_input_byte = bytes;
    io->source.bytes_in_buffer = size;
    io->size = size;
    io->end_allowed = false;
    io->ended = false;
    io->frame = 0;
    io->warnings = 0;
    io->first[0] = '\0';
    cinfo->src = &io->source;
    cinfo->progress = NULL;
}

void fl_libjpeg_io_fail(fl_libjpeg_io *io, fl_code code, const char *format, ...) {
    char text[FL_TEXT];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    io->code = fl_fail(io->err, code, "%s", text);
    longjmp(io->jump, 1);
}

void fl_libjpeg_io_header(fl_libjpeg_io *io, j_decompress_ptr cinfo, uint64_t max_pixels) {
    if (jpeg_read_header(cinfo, TRUE) != JPEG_HEADER_OK) truncated(io);
    uint64_t pixels = (uint64_t)cinfo->image_width * cinfo->image_height;
    if (pixels > max_pixels)
        fl_libjpeg_io_fail(io, FL_ELIMIT,
                           "the image is %u x %u = %llu pixels; the limit is %llu (raise max_pixels if the "
                           "file is to be trusted)",
                           cinfo->image_width, cinfo->image_height, (unsigned long long)pixels,
                           (unsigned long long)max_pixels);
    if (cinfo->data_precision != 8)
        fl_libjpeg_io_fail(io, FL_EUNSUPPORTED,
                           "the JPEG has %d bits a sample; only 8 are read: convert the file",
                           cinfo->data_precision);
    /* SOF3, SOF11: libjpeg-turbo 3 reads them, but can neither scale nor crop */
    if (io->frame == 0xC3 || io->frame == 0xCB)
        fl_libjpeg_io_fail(io, FL_EUNSUPPORTED,
                           "the JPEG is of the lossless kind (SOF%d); only DCT files are read: convert it",
                           io->frame - 0xC0);
    if (cinfo->num_components != 1 && cinfo->num_components != 3 && cinfo->num_components != 4)
        fl_libjpeg_io_fail(io, FL_EUNSUPPORTED,
                           "the JPEG has %d components; 1, 3 and 4 are read: convert the file",
                           cinfo->num_components);
}

/* Bytes that libjpeg allocates for a file of several scans: whole iMCUs of each component. */
static uint64_t coefficient_bytes(j_decompress_ptr cinfo) {
    const uint64_t across = (uint64_t)cinfo->max_h_samp_factor * DCTSIZE,
                   down = (uint64_t)cinfo->max_v_samp_factor * DCTSIZE;
    const uint64_t units =
        ((cinfo->image_width + across - 1) / across) * ((cinfo->image_height + down - 1) / down);
    uint64_t blocks = 0;
    for (int ci = 0; ci < cinfo->num_components; ci++)
        blocks += units * (uint64_t)cinfo->comp_info[ci].h_samp_factor *
                  (uint64_t)cinfo->comp_info[ci].v_samp_factor;
    return blocks * sizeof(JBLOCK);
}

void fl_libjpeg_io_data(fl_libjpeg_io *io, j_decompress_ptr cinfo) {
    bool scans = jpeg_has_multiple_scans(cinfo) != FALSE;
    const uint64_t bytes = scans ? coefficient_bytes(cinfo) : 0;
    if (bytes > FL_JPEG_COEFFICIENTS_MAX)
        fl_libjpeg_io_fail(io, FL_ELIMIT,
                           "the JPEG of %u x %u pixels has several scans, whose coefficients need %llu MiB "
                           "of memory; the limit is %d MiB: "
                           "save it as baseline",
                           cinfo->image_width, cinfo->image_height, (unsigned long long)(bytes >> 20),
                           FL_JPEG_COEFFICIENTS_MAX >> 20);
    io->end_allowed = !scans && !cinfo->arith_code;
    cinfo->progress = scans ? &io->progress : NULL;
}

bool fl_libjpeg_io_smooths(j_decompress_ptr cinfo) {
    if (!cinfo->progressive_mode || cinfo->coef_bits == NULL) return false;
    /* coef_bits counts the bits still missing, -1 for a coefficient never sent. libjpeg-turbo looks at the
     * first 9 AC coefficients (the first 5 before 2.1); zeros there in every component mean that nothing is
     * smoothed. */
    for (int ci = 0; ci < cinfo->num_components; ci++)
        for (int k = 0; k < 10; k++)
            if (cinfo->coef_bits[ci][k] != 0) return true;
    return false;
}
