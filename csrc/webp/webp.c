#include "webp/webp.h"

#include <stdlib.h>
#include <webp/decode.h>

enum {
    RIFF = 12,       /* bytes before the first chunk: RIFF, size of what follows, WEBP */
    HEAD = 8,        /* bytes before a chunk's contents: name, size */
    VP8X_SIZE = 10,  /* flags and the canvas */
    FLAGS = 60,      /* those of a still file */
    NAMED = RIFF + 4 /* bytes by which Pillow knows a WebP */
};

static const fl_buffer_rule RULE = {.least = 1 << 16, .keep = 1 << 24};

/* Bytes readable after the last row. */
enum { BEYOND = 16 };

/* Bytes that a decode takes, at most. */
enum { OF_DECODE = 1 << 20, OF_PIXEL = 8 };

/* Pixels around a box that are decoded with it: at the edges of what is cropped, libwebp interpolates chroma
 * as at those of an image. Even, since a crop begins at an even pixel. */
enum { MARGIN = 2 };

/* A chunk's name, little-endian. */
typedef enum name {
    ALPH = 0x48504C41,
    EXIF = 0x46495845,
    ICCP = 0x50434349,
    VP8 = 0x20385056,
    VP8L = 0x4C385056,
    VP8X = 0x58385056,
    XMP = 0x20504D58
} name;

static fl_code unsupported(fl_error *err, const char *why) {
    return fl_fail(err, FL_EUNSUPPORTED, "the WebP %s", why);
}

bool fl_webp_is(fl_span data) {
    if (data.size < NAMED || memcmp(data.bytes, "RIFF", 4) || memcmp(data.bytes + 8, "WEBP", 4)) return false;
    const uint32_t first = fl_bytes_le32(data.bytes + RIFF);
    return first == VP8 || first == VP8L || first == VP8X;
}

/* The chunk at the beginning of some, with its head and the byte that evens its size; of no bytes: it ends
 * beyond them. */
static fl_span first_of(fl_span chunks) {
    if (chunks.size < HEAD) return (fl_span){NULL, 0};
    const size_t content = fl_bytes_le32(chunks.bytes + 4), size = HEAD + content + (content & 1);
    return size <= chunks.size ? (fl_span){chunks.bytes, size} : (fl_span){NULL, 0};
}

/* Places of chunks in an extended file. */
enum { PROFILE = 1, ALPHA, IMAGE, METADATA };

/* 0: the chunk is unknown. */
static int order_of(uint32_t name) {
    switch (name) {
    case ICCP: return PROFILE;
    case ALPH: return ALPHA;
    case VP8:
    case VP8L: return IMAGE;
    case EXIF:
    case XMP: return METADATA;
    default: return 0;
    }
}

/* The chunks after the first one of an extended file. */
static fl_code read_chunks(fl_webp *webp, fl_span left, fl_error *err) {
    int before = 0;
    while (left.size) {
        const fl_span chunk = first_of(left);
        if (!chunk.size) return unsupported(err, "ends within a chunk");
        const uint32_t name = fl_bytes_le32(chunk.bytes);
        const int order = order_of(name);
        if (!order || order < before || (order == before && order != METADATA) ||
            (order == METADATA && before < IMAGE))
            return unsupported(err, "has a chunk where none of its kind is due");
        if (name == VP8L && before == ALPHA) return unsupported(err, "has two kinds of alpha");
        if (order == ALPHA || (order == IMAGE && before != ALPHA)) webp->image = chunk;
        else if (order == IMAGE) webp->image.size += chunk.size;
        webp->may_turn |= order == METADATA;
        before = order;
        left.bytes += chunk.size, left.size -= chunk.size;
    }
    return before < IMAGE ? unsupported(err, "has no image") : FL_OK;
}

static uint32_t side_at(const uint8_t *at) { return (fl_bytes_le16(at) | (uint32_t)at[2] << 16) + 1; }

fl_code fl_webp_open(fl_span data, fl_webp *webp, fl_error *err) {
    *webp = (fl_webp){.may_turn = false};
    if (!fl_webp_is(data)) return unsupported(err, "does not begin as one");
    const uint32_t size = fl_bytes_le32(data.bytes + 4); /* of what follows */
    if (size % 2 || size < RIFF || size > data.size - HEAD)
        return unsupported(err, "is shorter than it says");
    const fl_span chunks = {data.bytes + RIFF, size + HEAD - RIFF}, first = first_of(chunks);
    if (!first.size) return unsupported(err, "ends within a chunk");
    const fl_span others = {first.bytes + first.size, chunks.size - first.size};
    const bool extended = fl_bytes_le32(first.bytes) == VP8X;
    if (extended) {
        if (first.size != HEAD + VP8X_SIZE || first.bytes[HEAD] & ~FLAGS)
            return unsupported(err, "is animated, or has unknown flags");
        const fl_code code = read_chunks(webp, others, err);
        if (code) return code;
    } else {
        if (others.size) return unsupported(err, "goes on after its image");
        webp->image = first;
    }
    WebPBitstreamFeatures found;
    if (WebPGetFeatures(webp->image.bytes, webp->image.size, &found) != VP8_STATUS_OK || found.width < 1 ||
        found.height < 1)
        return unsupported(err, "has a damaged header");
    webp->width = (uint32_t)found.width, webp->height = (uint32_t)found.height;
    if (extended &&
        (side_at(first.bytes + HEAD + 4) != webp->width || side_at(first.bytes + HEAD + 7) != webp->height))
        return unsupported(err, "has an image that does not fill its canvas");
    return FL_OK;
}

/* The first pixel that is decoded for a box that begins at `at`. */
static uint32_t beginning(uint32_t at) { return at < MARGIN ? 0 : (at - MARGIN) & ~1u; }

/* Where the pixels end that are decoded for a box that ends at `at`. */
static uint32_t ending(uint32_t at, uint32_t size) { return size - at < MARGIN ? size : at + MARGIN; }

/* libwebp 1.5 also reports a damaged header of an alpha plane as a lack of memory. That it is only where as much as
 * a decode takes at most cannot be had. */
static bool lacks_memory(const fl_webp *webp) {
    void *volatile block = malloc(OF_DECODE + (size_t)webp->width * webp->height * OF_PIXEL);
    const bool lacks = !block;
    free(block);
    return lacks;
}

fl_code fl_webp_box(const fl_webp *webp, fl_box box, bool sound, fl_buffer *buffer, fl_view *view,
                    fl_error *err) {
    WebPDecoderConfig config;
    if (!WebPInitDecoderConfig(&config))
        return fl_fail(err, FL_EUNSUPPORTED, "libwebp is of another version than it was built for");
    const uint32_t left = beginning(box.x), top = beginning(box.y);
    const uint32_t right = ending(box.x + box.width, webp->width);
    const uint32_t bottom = sound ? ending(box.y + box.height, webp->height) : webp->height;
    const size_t stride = 3 * (size_t)(right - left), rows = bottom - top, size = stride * rows;
    if (!fl_buffer_fit(buffer, size + BEYOND, 1, RULE))
        return fl_fail(err, FL_ENOMEM, "no memory for %zu bytes of a WebP", size);
    config.options.use_cropping = 1;
    config.options.crop_left = (int)left, config.options.crop_width = (int)(right - left);
    config.options.crop_top = (int)top, config.options.crop_height = (int)rows;
    config.output.colorspace = MODE_RGB;
    config.output.is_external_memory = 1;
    config.output.u.RGBA = (WebPRGBABuffer){buffer->bytes, (int)stride, size};
    const VP8StatusCode status = WebPDecode(webp->image.bytes, webp->image.size, &config);
    if (status == VP8_STATUS_OUT_OF_MEMORY && lacks_memory(webp))
        return fl_fail(err, FL_ENOMEM, "no memory to decode a WebP");
    if (status != VP8_STATUS_OK) return unsupported(err, "has damaged data");
    *view = (fl_view){.width = box.width, .height = box.height, .stride = stride, .tail = BEYOND};
    view->pixels = (const uint8_t *)buffer->bytes + (box.y - top) * stride + 3 * (size_t)(box.x - left);
    return FL_OK;
}
