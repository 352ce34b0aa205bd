# Image files for Python: the list of paths that the engine reads from where nobody packed anything.

from fastload._native.c_common cimport fl_code, fl_error
from fastload._native.c_store cimport fl_files, fl_files_count, fl_files_create, fl_files_free, fl_files_learnt


cdef class Files:
    """Paths of image files, for the engine; immutable. It opens none before an image is read, and keeps none open.

    Args:
        prefix: what all paths begin with.
        names: the rest of each, ended by a zero byte each, in one bytes object.
        count: how many they are.
        room: bytes of memory for the entropy indexes of files that were read.

    Raises:
        ArgumentError: `names` is not that, or a path is longer than the system takes.
        ResourceError: no memory for them.
    """

    cdef fl_files *ptr

    def __cinit__(self, bytes prefix not None, bytes names not None, uint64_t count, size_t room):
        cdef fl_error err
        cdef fl_code code
        cdef const char *start = PyBytes_AS_STRING(prefix)
        cdef const char *listed = PyBytes_AS_STRING(names)
        cdef size_t size = len(names)
        with nogil:
            code = fl_files_create(&self.ptr, start, listed, size, count, room, &err)
        check(code, &err)

    def __dealloc__(self):
        fl_files_free(self.ptr)

    def __len__(self):
        return fl_files_count(self.ptr)

    def learnt(self):
        """(files, bytes): how many entropy indexes are held, and the memory that they take."""
        cdef uint64_t indexes, held
        fl_files_learnt(self.ptr, &indexes, &held)
        return indexes, held
