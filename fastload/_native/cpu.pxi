# The instruction sets in use. FASTLOAD_CPU restricts them for the whole process, once, when this module is
# loaded.

from fastload._native.c_common cimport FL_CPU_NAMES, fl_cpu_names, fl_cpu_use, fl_error

from libc.stdlib cimport getenv as _getenv


def use_cpu(names):
    """Restricts the CPU's later instructions that this process uses. The same values are made by each of
    them.

    Args:
        names: "plain" for none of them, "" for all, or some, such as "crc32c,avx2". What the CPU lacks is
            never used.

    Raises:
        ArgumentError: an unknown name; the message has all known ones.
    """
    cdef fl_error err
    encoded = names.encode()
    check(fl_cpu_use(encoded, &err), &err)


def cpu_features():
    """The names of the instruction sets in use, separated by commas; "plain" when there are none."""
    cdef char names[FL_CPU_NAMES]
    fl_cpu_names(names)
    return (<bytes>(<const char *>names)).decode("ascii")


cdef int _follow_environment() except -1:
    cdef fl_error err
    return check(fl_cpu_use(_getenv("FASTLOAD_CPU"), &err), &err)


_follow_environment()
