# Image files for Python: the list of paths that the engine reads from where nobody packed anything.

from fastload._native.c_common cimport fl_buffer, fl_buffer_free, fl_code, fl_error, fl_span
from fastload._native.c_store cimport (
    fl_facts_learnt,
    FL_FILES_BYTES, FL_FILES_FACTS, FL_FILES_FORMS, fl_files, fl_files_count, fl_files_create,
    fl_files_create_places, fl_files_free, fl_files_keep, fl_files_keeping, fl_files_facts, fl_files_keeps,
    fl_files_places, fl_files_read, fl_files_shrink, fl_files_take_only, fl_place_content_stamp, fl_place_open,
    fl_place_stamp,
)
from posix.stat cimport stat as _stat, struct_stat
from posix.unistd cimport close as _close_descriptor

import numpy as _np

KEEP_FACTS, KEEP_FORMS, KEEP_BYTES = FL_FILES_FACTS, FL_FILES_FORMS, FL_FILES_BYTES


def file_stamp(bytes path not None):
    """The stamp of a regular file: a number that changes where the file is written or replaced.

    Raises:
        DatasetError: it cannot be opened, or is no regular file.
    """
    cdef fl_error err
    cdef fl_code code
    cdef struct_stat st
    cdef int fd = -1
    cdef const char *start = PyBytes_AS_STRING(path)
    with nogil:
        code = fl_place_open(start, &fd, &st, &err)
    check(code, &err)
    _close_descriptor(fd)
    return fl_place_stamp(&st)


def content_stamp(bytes path not None):
    """The stamp of a file on a disk that is not this host's alone, by its size and time of writing; 0: its status
    cannot be told. It is not opened."""
    cdef struct_stat st
    cdef int failed
    cdef const char *start = PyBytes_AS_STRING(path)
    with nogil:
        failed = _stat(start, &st)
    return 0 if failed else fl_place_content_stamp(&st)


cdef class Files:
    """Image files by their paths, or parts of files, for the engine; immutable. It opens none before an image
    is read, and keeps none open.

    Args:
        prefix: beginning of all paths.
        names: the rest of each, ended by a zero byte each, in one bytes object.
        count: number of paths.
        room: bytes of memory for the entropy indexes of files that were read.
        places: None: each path is an image. Or (stamps, offsets, sizes, paths): of each path the stamp that
            its file must have, 0 for any; of each image its place, and the number of its path; size 0 for the
            whole file. Images whose metadata may turn them then fail.
        kinds: record kinds of the images that are decoded, of IMAGE_KINDS: files of others fail; None: all
            that the engine decodes.

    Raises:
        ArgumentError: `names` or `places` are not that, or a path is longer than the system takes.
        ResourceError: no memory for them.
    """

    cdef fl_files *ptr
    cdef Kept kept

    def __cinit__(self, bytes prefix not None, bytes names not None, uint64_t count, size_t room, places=None,
                  kinds=None):
        cdef fl_error err
        cdef fl_code code
        cdef const char *start = PyBytes_AS_STRING(prefix)
        cdef const char *listed = PyBytes_AS_STRING(names)
        cdef size_t size = len(names)
        cdef fl_files_places parts
        cdef const uint64_t[::1] stamps
        cdef const uint64_t[::1] offsets
        cdef const uint32_t[::1] sizes
        cdef const uint32_t[::1] paths
        if places is None:
            with nogil:
                code = fl_files_create(&self.ptr, start, listed, size, count, room, &err)
        else:
            stamps, offsets, sizes, paths = places
            if <uint64_t>stamps.shape[0] != count or not offsets.shape[0] == sizes.shape[0] == paths.shape[0]:
                raise _errors.ArgumentError(
                    f"{stamps.shape[0]} stamps for {count} paths, {offsets.shape[0]} offsets, "
                    f"{sizes.shape[0]} sizes, {paths.shape[0]} paths"
                )
            parts.count = offsets.shape[0]
            parts.stamps = &stamps[0] if count else NULL
            parts.offsets, parts.sizes, parts.paths = NULL, NULL, NULL
            if parts.count:
                parts.offsets, parts.sizes, parts.paths = &offsets[0], &sizes[0], &paths[0]
            with nogil:
                code = fl_files_create_places(&self.ptr, start, listed, size, count, &parts, room, &err)
        check(code, &err)
        if kinds is not None:
            fl_files_take_only(self.ptr, sum(1 << kind for kind in set(kinds)))

    def __dealloc__(self):
        fl_files_free(self.ptr)

    def __len__(self):
        return fl_files_count(self.ptr)

    def read(self, uint64_t index):
        """The bytes of one image.

        Raises:
            SampleError: there is no such image.
            DatasetError: they cannot be read, or their file has changed; without the file's name.
        """
        cdef fl_error err
        cdef fl_code code
        cdef fl_buffer buffer
        cdef fl_span found
        cdef uint64_t stamp
        buffer.bytes, buffer.room = NULL, 0
        with nogil:
            code = fl_files_read(self.ptr, index, &buffer, &found, &stamp, &err)
        try:
            check(code, &err)
            return PyBytes_FromStringAndSize(<const char *>found.bytes, found.size)
        finally:
            fl_buffer_free(&buffer)

    def learnt(self):
        """(files, bytes): how many entropy indexes are held, and the memory that they take."""
        cdef uint64_t indexes, held
        fl_facts_learnt(fl_files_facts(self.ptr), &indexes, &held)
        return indexes, held

    def keep(self, Kept kept not None, fl_files_keeping keeping):
        """Keeps what is learnt by `kept`, of as many images; before any is read.

        Args:
            keeping: KEEP_FACTS: that alone. KEEP_FORMS: JPEGs in their DCT form, too, made while an engine
                rests. KEEP_BYTES: the bytes of files, too: they lie on a slow disk, are read by many threads
                ahead of those that decode them, and once.

        Raises:
            ResourceError: no memory.
        """
        cdef fl_error err
        check(fl_files_keep(self.ptr, kept.ptr, keeping, &err), &err)
        self.kept = kept

    def shrink(self, uint32_t side):
        """Takes images whose shorter side is more than `side` pixels as JPEGs of quality 95 with just that, made when
        they are first read; before any is."""
        fl_files_shrink(self.ptr, side)

    def keeps(self, fl_files_keeping keeping):
        """True if that is what it keeps."""
        return bool(fl_files_keeps(self.ptr, keeping))
