# Snapshots of names in modules and classes.

from cpython.dict cimport PyDict_GetItemWithError, PyDict_Next
from cpython.object cimport PyObject


cdef extern from "Python.h":
    PyObject *PyTuple_GET_ITEM(PyObject *, Py_ssize_t)
    PyObject *PyFunction_GET_CODE(PyObject *)
    ctypedef struct TypeObject "PyTypeObject":
        PyObject *tp_dict
        unsigned int tp_version_tag


cdef object _ABSENT = object()


cdef class Snapshot:
    """Objects that modules, classes and dicts held under some names when it was made, and the code objects of
    functions.

    1. Objects are compared by identity, so that no code of theirs runs.
    2. Python gives a class a version, by which its own method cache works: it becomes 0 when the class or one
       of its bases changes, and a new number at the next look-up. A class of the same version as before,
       other than 0, is not compared again.
    3. A class that has other bases is another.

    Args:
        places: (module, class or dict, names); None for the names: all that it holds.
        functions: functions written in Python.
    """

    cdef list holders, bases, spaces, names, values, versions
    cdef tuple functions, codes

    def __init__(self, list places not None, list functions not None):
        self.holders = [holder for holder, _ in places]
        self.versions = [_version(holder) for holder in self.holders]
        self.bases = [_bases_of(holder) for holder in self.holders]
        self.spaces = [_space_of(holder) for holder in self.holders]
        self.names = [names if names is None else tuple(names) for _, names in places]
        self.values = [_values_of(space, names) for space, names in zip(self.spaces, self.names)]
        self.functions = tuple(functions)
        self.codes = tuple([each.__code__ for each in functions])

    def holds(self):
        """Returns True if the same objects stand there, and none where there was none."""
        cdef Py_ssize_t i
        cdef PyObject *functions = <PyObject *>self.functions
        cdef PyObject *codes = <PyObject *>self.codes
        for i in range(len(self.spaces)):
            if _is_version(self.holders[i], self.versions[i]):
                continue
            if _bases_of(self.holders[i]) is not self.bases[i]:
                return False
            if not _same(<dict>self.spaces[i], self.names[i], <tuple>self.values[i]):
                return False
            self.versions[i] = _version(self.holders[i])
        for i in range(len(self.functions)):
            if PyFunction_GET_CODE(PyTuple_GET_ITEM(functions, i)) is not PyTuple_GET_ITEM(codes, i):
                return False
        return True


cdef object _version(holder):
    """The version of a class, which a look-up gives it; 0 of one that has none, and of other objects."""
    if not isinstance(holder, type):
        return 0
    getattr(holder, "__doc__", None)
    return (<TypeObject *>holder).tp_version_tag


cdef inline bint _is_version(holder, version) except -1:
    return version and (<TypeObject *>holder).tp_version_tag == <unsigned int>version


cdef object _bases_of(holder):
    return (<type>holder).__mro__ if isinstance(holder, type) else None


cdef dict _space_of(holder):
    if isinstance(holder, type):
        return <dict>(<TypeObject *>holder).tp_dict
    return holder if isinstance(holder, dict) else vars(holder)


cdef tuple _values_of(dict space, tuple names):
    return tuple(space.values()) if names is None else tuple([space.get(name, _ABSENT) for name in names])


cdef bint _same(dict space, tuple names, tuple values) except -1:
    cdef Py_ssize_t i, at = 0
    cdef PyObject *value
    if names is None and len(space) != len(values):
        return False
    for i in range(len(values)):
        if names is None:
            PyDict_Next(space, &at, NULL, &value)
        else:
            value = PyDict_GetItemWithError(space, names[i])
        if (<PyObject *>_ABSENT if value is NULL else value) is not PyTuple_GET_ITEM(<PyObject *>values, i):
            return False
    return True
