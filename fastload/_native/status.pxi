# The one funnel from fl_code to exceptions: every native call's result goes through check().

from fastload._native.c_common cimport (
    fl_code, FL_EARG, FL_ECHECKSUM, FL_ECLOSED, FL_EFORK, FL_EFULL, FL_EIO, FL_EJPEG, FL_ELIMIT, FL_ENOMEM,
    FL_ENOTFOUND, FL_ERECORD, FL_EREMOTE, FL_ERESOURCE, fl_error, FL_ESHARD, FL_ETIMEOUT, FL_ETRUNCATED,
    FL_EUNSUPPORTED, FL_OK,
)

from fastload import errors as _errors

_SAMPLE_CODES = frozenset(
    (FL_ENOTFOUND, FL_ERECORD, FL_ECHECKSUM, FL_EJPEG, FL_ETRUNCATED, FL_ELIMIT, FL_EUNSUPPORTED)
)
RESOURCE_CODES = frozenset((FL_ENOMEM, FL_ERESOURCE))
REMOTE_CODE = FL_EREMOTE
CHECKSUM_CODE = FL_ECHECKSUM
_CLASS_OF = {
    FL_ENOMEM: _errors.ResourceError,
    FL_EARG: _errors.ArgumentError,
    FL_EIO: _errors.DatasetError,
    FL_ETIMEOUT: _errors.LoaderTimeout,
    FL_ECLOSED: _errors.ClosedError,
    FL_EFULL: _errors.ResourceError,
    FL_EFORK: _errors.ClosedError,
    FL_ESHARD: _errors.DatasetError,
    FL_ERESOURCE: _errors.ResourceError,
    FL_EREMOTE: _errors.RemoteError,
}


cdef object error_text(const fl_error *err):
    return (<bytes>(<const char *>err.text)).decode("utf-8", "replace")


cdef int check(fl_code code, const fl_error *err) except -1:
    """Raises the exception that belongs to code; returns 0 for FL_OK. Sample failures raise SampleError with
    the bare reason: whoever knows the index and the file wraps it."""
    if code == FL_OK:
        return 0
    text = error_text(err)
    if code in _SAMPLE_CODES:
        raise _errors.SampleError(text, reason=text)
    raise _CLASS_OF.get(code, _errors.FastloadError)(text)
