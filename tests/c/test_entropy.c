/* The entropy walk: files of libjpeg's compressor are proved; of damaged ones only those of which libjpeg has
 * nothing to say. Under the sanitizers this is also the test that no damage makes it read or write where it
 * must not. */
#include "check.h"
#include "jpeg/entropy.h"
#include "jpeg/transcode.h"
/* of its helpers only some are needed here */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
#include "jpeg_maker.h"
#pragma GCC diagnostic pop

static bool libjpeg_is_silent(const uint8_t *bytes, size_t size) {
    fl_error err;
    fl_jpeg_checked checked;
    return fl_jpeg_check(bytes, size, 1 << 28, &checked, &err) == FL_OK && checked.warnings == 0;
}

/* A copy in a block of its own size, so that a sanitizer sees a read one byte beyond it. */
static bool sound(fl_jpeg_entropy *entropy, const uint8_t *bytes, size_t size) {
    uint8_t *copy = malloc(size ? size : 1);
    memcpy(copy, bytes, size);
    bool result = fl_jpeg_entropy_sound(entropy, copy, size);
    free(copy);
    return result;
}

static size_t damage(uint8_t *bytes, size_t size) {
    size_t at = 2 + below((uint32_t)size - 2);
    switch (below(4)) {
    case 0: bytes[at] ^= (uint8_t)(1u << below(8)); return size;
    case 1: bytes[at] = (uint8_t)(below(2) ? 0xFF : 0xD0 + below(10)); return size;
    case 2: return at;
    default: {
        size_t gone = 1 + below(40);
        if (gone > size - at) gone = size - at;
        memmove(bytes + at, bytes + at + gone, size - at - gone);
        return size - gone;
    }
    }
}

int main(void) {
    static const recipe recipes[] = {
        {.width = 61, .height = 47, .quality = 75, .components = 3, .h = 2, .v = 2},
        {.width = 64, .height = 64, .quality = 100, .components = 3, .h = 1, .v = 1, .restart = 3},
        {.width = 33, .height = 80, .quality = 30, .components = 3, .h = 2, .v = 1, .restart = 1},
        {.width = 50, .height = 20, .quality = 90, .components = 1, .h = 1, .v = 1},
        {.width = 1, .height = 1, .quality = 90, .components = 1, .h = 1, .v = 1},
        /* large enough to be walked from three places at once */
        {.width = 240, .height = 180, .quality = 95, .components = 3, .h = 2, .v = 2},
        {.width = 200, .height = 150, .quality = 100, .components = 1, .h = 1, .v = 1},
        {.width = 320, .height = 160, .quality = 97, .components = 3, .h = 1, .v = 2, .restart = 120},
    };
    fl_error err;
    fl_jpeg_entropy *entropy;
    CHECK(fl_jpeg_entropy_create(&entropy, &err) == FL_OK);
    long proved = 0;
    for (size_t i = 0; i < sizeof recipes / sizeof recipes[0]; i++) {
        file whole = make(&recipes[i]);
        CHECK(libjpeg_is_silent(whole.bytes, whole.size));
        CHECK(sound(entropy, whole.bytes, whole.size));
        for (size_t cut = 0; cut < whole.size; cut += 1 + whole.size / 300)
            CHECK(!sound(entropy, whole.bytes, cut));
        uint8_t *broken = malloc(whole.size);
        for (int round = 0; round < 1500 / THIN; round++) {
            memcpy(broken, whole.bytes, whole.size);
            size_t size = damage(broken, whole.size);
            if (!sound(entropy, broken, size)) continue;
            proved++;
            CHECK(libjpeg_is_silent(broken, size));
        }
        free(broken);
        free(whole.bytes);
    }
    CHECK(proved > 0);
    recipe bare = recipes[0], progressive = recipes[0], cmyk = recipes[0];
    bare.bare = progressive.progressive = true;
    cmyk.components = 4;
    const recipe *others[] = {&bare, &progressive, &cmyk};
    for (int i = 0; i < 3; i++) {
        file other = make(others[i]);
        CHECK(!sound(entropy, other.bytes, other.size));
        free(other.bytes);
    }
    fl_jpeg_entropy_free(entropy);
    fl_jpeg_entropy_free(NULL);
    return 0;
}
