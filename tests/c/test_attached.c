/* Attached images: what is read of a place in another file, and what is refused. */
#define _GNU_SOURCE
#include "store/attached.h"

#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"
#include "common/crc32c.h"
#include "store/record.h"

static char folder[] = "/tmp/fl-attached-XXXXXX";

typedef struct written {
    uint8_t bytes[FL_ATTACHED_HEAD + PATH_MAX];
    size_t size;
} written;

static void put64(uint8_t *at, uint64_t value) {
    fl_bytes_put_le32(at, (uint32_t)value);
    fl_bytes_put_le32(at + 4, (uint32_t)(value >> 32));
}

static written entry(uint64_t offset, uint32_t size, const char *image, uint64_t file_size, const char *path,
                     size_t path_size) {
    written out = {.size = FL_ATTACHED_HEAD + path_size};
    put64(out.bytes, offset);
    put64(out.bytes + 8, file_size);
    put64(out.bytes + 16, 0);
    fl_bytes_put_le32(out.bytes + 24, size);
    fl_bytes_put_le32(out.bytes + 28, fl_crc32c(0, image, strlen(image)));
    memcpy(out.bytes + FL_ATTACHED_HEAD, path, path_size);
    return out;
}

static void write_file(const char *name, const char *text) {
    char path[PATH_MAX];
    CHECK((size_t)snprintf(path, sizeof path, "%s/%s", folder, name) < sizeof path);
    FILE *file = fopen(path, "wb");
    CHECK(file && fputs(text, file) >= 0 && fclose(file) == 0);
}

static fl_code read_entry(const written *from, const char *base, fl_error *err) {
    fl_buffer buffer = {NULL, 0};
    fl_page_cache cache = {0};
    fl_span image = {NULL, 0};
    const fl_span span = {from->bytes, from->size};
    uint64_t stamp = 0;
    const fl_code code = fl_attached_read(span, base, &buffer, &image, &stamp, err);
    (void)fl_attached_ahead(span, base, &cache);
    if (!code) CHECK(image.size == 5 && memcmp(image.bytes, "image", 5) == 0);
    if (code == FL_OK || code == FL_ECHECKSUM) CHECK(stamp && fl_attached_now(span, base) == stamp);
    if (code == FL_ERECORD) CHECK(fl_attached_now(span, base) == 0);
    fl_buffer_free(&buffer);
    return code;
}

static void reading(void) {
    fl_error err;
    char path[PATH_MAX];
    write_file("file", "..image..");
    const written inside = entry(2, 5, "image", 9, "file", 4);
    CHECK(read_entry(&inside, folder, &err) == FL_OK);
    CHECK(read_entry(&inside, NULL, &err) == FL_ERECORD);
    CHECK((size_t)snprintf(path, sizeof path, "%s/file", folder) < sizeof path);
    const written absolute = entry(2, 5, "image", 9, path, strlen(path));
    CHECK(read_entry(&absolute, "/nowhere", &err) == FL_OK && read_entry(&absolute, NULL, &err) == FL_OK);
    write_file("file", "..image");
    CHECK(read_entry(&inside, folder, &err) == FL_OK); /* another size, and the same image */
}

static void changed(void) {
    fl_error err;
    const written inside = entry(2, 5, "image", 9, "file", 4);
    write_file("file", "..imagE..");
    CHECK(read_entry(&inside, folder, &err) == FL_ECHECKSUM && strstr(err.text, "file was changed after"));
    write_file("file", "..imag");
    CHECK(read_entry(&inside, folder, &err) == FL_ECHECKSUM && strstr(err.text, "9 bytes then, 6 now"));
    const written gone = entry(0, 5, "image", 9, "gone", 4), above = entry(0, 5, "image", 9, ".", 1);
    CHECK(read_entry(&gone, folder, &err) == FL_EIO && strstr(err.text, "gone: "));
    CHECK(read_entry(&above, folder, &err) == FL_EIO);
}

static void refused(void) {
    fl_error err;
    char longest[PATH_MAX];
    memset(longest, 'x', sizeof longest);
    const written cut = {.size = FL_ATTACHED_HEAD}, none = entry(0, 0, "", 9, "file", 4),
                  huge = entry(0, UINT32_MAX, "", 9, "file", 4);
    const written beyond = entry(UINT64_MAX - 2, 5, "image", 9, "file", 4),
                  zero = entry(0, 5, "image", 9, "fi\0le", 5);
    const written path = entry(0, 5, "image", 9, longest, sizeof longest - 2);
    const written *all[] = {&cut, &none, &huge, &beyond, &zero, &path};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        CHECK(read_entry(all[i], folder, &err) == FL_ERECORD);
}

/* Of a record's first bytes an entry is found where it lies in them, and nowhere else. */
static void peeking(void) {
    uint8_t head[64] = {0};
    fl_record_field found;
    fl_bytes_put_le16(head + 6, 2);
    fl_bytes_put_le16(head + FL_RECORD_HEADER, 7);
    fl_bytes_put_le16(head + FL_RECORD_HEADER + FL_RECORD_ENTRY, 3);
    fl_bytes_put_le32(head + FL_RECORD_HEADER + FL_RECORD_ENTRY + 4, 60);
    fl_bytes_put_le32(head + FL_RECORD_HEADER + FL_RECORD_ENTRY + 8, 4);
    CHECK(fl_record_peek((fl_span){head, 64}, 3, &found) && found.data.bytes == head + 60 &&
          found.data.size == 4);
    CHECK(!fl_record_peek((fl_span){head, 63}, 3, &found) && !fl_record_peek((fl_span){head, 64}, 4, &found));
    for (size_t size = 0; size < 48; size++) CHECK(!fl_record_peek((fl_span){head, size}, 3, &found));
}

int main(void) {
    CHECK(mkdtemp(folder));
    reading();
    changed();
    refused();
    peeking();
    char path[PATH_MAX];
    CHECK((size_t)snprintf(path, sizeof path, "%s/file", folder) < sizeof path);
    CHECK(unlink(path) == 0 && rmdir(folder) == 0);
    puts("attached: ok");
    return 0;
}
