/* Places: what is read of a part of a file, and what is refused: hostile offsets and sizes, what is no file,
 * a file that was cut. */
#define _GNU_SOURCE
#include "store/place.h"

#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "check.h"

static char folder[] = "/tmp/fl-place-XXXXXX";
static char file[PATH_MAX], fifo[PATH_MAX], link_to[PATH_MAX];

static void write_file(const char *text) {
    FILE *out = fopen(file, "wb");
    CHECK(out && fputs(text, out) >= 0 && fclose(out) == 0);
}

static void opening(void) {
    fl_error err;
    struct stat st;
    int fd = 0;
    CHECK(fl_place_open("/nowhere/at all", &fd, &st, &err) == FL_EIO && fd == -1 && err.sys);
    fd = 0;
    CHECK(fl_place_open(folder, &fd, &st, &err) == FL_EIO && fd == -1);
    CHECK(fl_place_open(fifo, &fd, &st, &err) == FL_EIO && fd == -1); /* and at once: nobody writes into it */
    CHECK(fl_place_open("/dev/null", &fd, &st, &err) == FL_EIO && fd == -1);
    CHECK(fl_place_open(link_to, &fd, &st, &err) == FL_OK && fd >= 0 && st.st_size == 10);
    CHECK(close(fd) == 0);
}

static void reading(void) {
    fl_error err;
    struct stat st;
    int fd;
    fl_buffer buffer = {NULL, 0};
    fl_span bytes;
    CHECK(fl_place_open(file, &fd, &st, &err) == FL_OK);
    for (uint64_t offset = 0; offset < 10; offset++) {
        for (uint64_t size = 1; size <= 10 - offset; size++) {
            CHECK(fl_place_check(&st, offset, size, &err) == FL_OK);
            CHECK(fl_place_read(fd, offset, size, &buffer, &bytes, &err) == FL_OK && bytes.size == size &&
                  memcmp(bytes.bytes, &"0123456789"[offset], size) == 0);
        }
    }
    CHECK(truncate(file, 4) == 0);
    CHECK(fl_place_read(fd, 2, 2, &buffer, &bytes, &err) == FL_OK && memcmp(bytes.bytes, "23", 2) == 0);
    CHECK(fl_place_read(fd, 2, 3, &buffer, &bytes, &err) == FL_EIO &&
          fl_place_read(fd, 9, 1, &buffer, &bytes, &err) == FL_EIO);
    fl_buffer_free(&buffer);
    CHECK(close(fd) == 0);
}

static void hostile(void) {
    fl_error err;
    struct stat st = {.st_size = 10};
    static const uint64_t bad[][2] = {{0, 0},
                                      {0, 11},
                                      {10, 1},
                                      {11, 1},
                                      {UINT64_MAX, 1},
                                      {1, UINT64_MAX},
                                      {UINT64_MAX, UINT64_MAX},
                                      {5, UINT64_MAX},
                                      {1ull << 63, 1}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK(fl_place_check(&st, bad[i][0], bad[i][1], &err) == FL_EIO);
    st.st_size = INT64_MAX;
    CHECK(fl_place_check(&st, 0, FL_PLACE_MOST, &err) == FL_OK &&
          fl_place_check(&st, INT64_MAX - 1, 1, &err) == FL_OK);
    CHECK(fl_place_check(&st, 0, FL_PLACE_MOST + 1ull, &err) == FL_EIO);
    st.st_size = -1;
    CHECK(fl_place_check(&st, 0, 1, &err) == FL_EIO);
}

static void stamps(void) {
    struct stat st, then;
    CHECK(stat(file, &st) == 0);
    const uint64_t first = fl_place_stamp(&st);
    CHECK(stat(file, &then) == 0 && first && fl_place_stamp(&then) == first);
    write_file("other");
    CHECK(stat(file, &then) == 0 && fl_place_stamp(&then) != first);
}

static void named(char *into, const char *name) {
    CHECK((size_t)snprintf(into, PATH_MAX, "%s/%s", folder, name) < PATH_MAX);
}

int main(void) {
    CHECK(mkdtemp(folder));
    named(file, "file"), named(fifo, "fifo"), named(link_to, "link");
    CHECK(mkfifo(fifo, 0600) == 0 && symlink(file, link_to) == 0);
    write_file("0123456789");
    opening();
    reading();
    hostile();
    stamps();
    CHECK(unlink(file) == 0 && unlink(fifo) == 0 && unlink(link_to) == 0 && rmdir(folder) == 0);
    puts("place: ok");
    return 0;
}
