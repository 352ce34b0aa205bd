/* common/status: one code per failure a user can meet, and the text that goes with it.
 *
 * Every fl_ function that can fail returns an fl_code and, when it is not FL_OK, has filled the caller's
 * fl_error. An fl_error belongs to the caller, is written by one thread, and holds no pointer: it may be
 * copied.
 */
#ifndef FL_COMMON_STATUS_H
#define FL_COMMON_STATUS_H

typedef enum fl_code {
    FL_OK = 0,
    FL_ENOMEM = 1,       /* memory: an allocation failed, the text names the bytes */
    FL_EARG = 2,         /* a caller's argument is out of range */
    FL_EIO = 3,          /* the operating system refused; sys holds errno */
    FL_ETIMEOUT = 4,     /* nothing became ready within the timeout */
    FL_ECLOSED = 5,      /* the object was closed, or is being closed */
    FL_EFULL = 6,        /* a bounded queue of this library has no room */
    FL_EINTR = 7,        /* a signal arrived during a wait */
    FL_EFORK = 8,        /* the object belongs to another process (it crossed a fork) */
    FL_ESHARD = 9,       /* a shard is missing, truncated, not LMDB, or its tree is damaged */
    FL_ENOTFOUND = 10,   /* the shard has no such key */
    FL_ERECORD = 11,     /* a record's lengths or kinds do not hold */
    FL_ECHECKSUM = 12,   /* a record's bytes are not those that were packed */
    FL_EJPEG = 13,       /* libjpeg-turbo cannot decode it */
    FL_ETRUNCATED = 14,  /* the JPEG ends before its last row */
    FL_ELIMIT = 15,      /* more pixels than the limit allows */
    FL_EUNSUPPORTED = 16, /* a valid file of a kind that this build does not read (12 bit, ...) */
    FL_ERESOURCE =
        17,   /* the system has no more file descriptors or threads for this process; sys holds errno */
    FL_EREMOTE = 18      /* what lies in a bucket could not be fetched */
} fl_code;

enum { FL_TEXT = 240 };

typedef struct fl_error {
    fl_code code;
    int sys; /* errno, or 0 */
    char text[FL_TEXT];
} fl_error;

/* Fills err (when not NULL) and returns code, so that a failure is one statement: return fl_fail(err, FL_EIO,
 * ...). */
__attribute__((format(printf, 3, 4))) fl_code fl_fail(fl_error *err, fl_code code, const char *format, ...);

/* As fl_fail, with ": <strerror(sys)>" appended; sys is kept. */
__attribute__((format(printf, 4, 5))) fl_code fl_fail_sys(fl_error *err, fl_code code, int sys,
                                                          const char *format, ...);

#endif
