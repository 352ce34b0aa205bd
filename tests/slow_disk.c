/* A read-only file system that shows a folder, and takes a while for each open: as a network has it.
 *
 *     slow_disk MOUNTPOINT FOLDER MILLISECONDS [FUSE'S OPTIONS]
 *
 * It writes "(" to its output where an open begins, and ")" where it ends. */
#define _GNU_SOURCE
#define FUSE_USE_VERSION 31
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fuse3/fuse.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static char folder[PATH_MAX];
static long delay_ms;

static void path_of(const char *path, char out[2 * PATH_MAX]) {
    snprintf(out, 2 * PATH_MAX, "%s%s", folder, path);
}

static int slow_getattr(const char *path, struct stat *st, struct fuse_file_info *info) {
    char real[2 * PATH_MAX];
    (void)info;
    path_of(path, real);
    return lstat(real, st) ? -errno : 0;
}

static int slow_readdir(const char *path, void *buffer, fuse_fill_dir_t fill, off_t at,
                        struct fuse_file_info *info, enum fuse_readdir_flags flags) {
    char real[2 * PATH_MAX];
    (void)at, (void)info, (void)flags;
    path_of(path, real);
    DIR *opened = opendir(real);
    if (!opened) return -errno;
    for (struct dirent *each; (each = readdir(opened));) fill(buffer, each->d_name, NULL, 0, 0);
    closedir(opened);
    return 0;
}

static int slow_open(const char *path, struct fuse_file_info *info) {
    char real[2 * PATH_MAX];
    const struct timespec pause = {delay_ms / 1000, delay_ms % 1000 * 1000000};
    path_of(path, real);
    if (write(STDOUT_FILENO, "(", 1) != 1) return -EIO;
    nanosleep(&pause, NULL);
    if (write(STDOUT_FILENO, ")", 1) != 1) return -EIO;
    const int fd = open(real, O_RDONLY);
    if (fd < 0) return -errno;
    info->fh = (uint64_t)fd;
    return 0;
}

static int slow_read(const char *path, char *into, size_t size, off_t at, struct fuse_file_info *info) {
    (void)path;
    const ssize_t count = pread((int)info->fh, into, size, at);
    return count < 0 ? -errno : (int)count;
}

static int slow_release(const char *path, struct fuse_file_info *info) {
    (void)path;
    close((int)info->fh);
    return 0;
}

int main(int argc, char **argv) {
    static const struct fuse_operations operations = {.getattr = slow_getattr,
                                                      .readdir = slow_readdir,
                                                      .open = slow_open,
                                                      .read = slow_read,
                                                      .release = slow_release};
    if (argc < 4 || !realpath(argv[2], folder)) return 2;
    delay_ms = atol(argv[3]);
    argv[3] = argv[1];
    argv[2] = argv[0];
    return fuse_main(argc - 2, argv + 2, &operations, NULL);
}
