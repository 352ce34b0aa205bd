# Packed shards and their records. Declarations of csrc/store.

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from posix.stat cimport struct_stat

from fastload._native.c_common cimport fl_box, fl_buffer, fl_code, fl_error, fl_span

cdef extern from "store/record.h" nogil:
    ctypedef struct fl_record_field:
        uint16_t field
        uint8_t kind
        fl_span data
    enum:
        FL_RECORD_MAGIC
        FL_RECORD_VERSION
        FL_RECORD_HEADER
        FL_RECORD_ENTRY
        FL_RECORD_ENTRIES_MAX
        FL_RECORD_KIND_JPEG
        FL_RECORD_KIND_RAW
        FL_RECORD_KIND_BYTES
        FL_RECORD_KIND_TEXT
        FL_RECORD_KIND_JSON
        FL_RECORD_KIND_INDEX
        FL_RECORD_KIND_PLACE
        FL_RECORD_KIND_FILE
        FL_RECORD_KIND_PLANES
        FL_RECORD_KIND_VARYING
        FL_RECORD_KIND_DCT
        FL_RECORD_INDEX
    fl_code fl_record_check(fl_span record, uint32_t *entries, fl_error *err)
    fl_record_field fl_record_entry(fl_span record, uint32_t i)

cdef extern from "store/tree.h" nogil:
    enum:
        FL_STORE_COLUMN_NAME
    ctypedef struct fl_store_place:
        uint32_t size
    fl_store_place fl_store_place_at(uint64_t offset, uint32_t size)
    uint64_t fl_store_place_offset(fl_store_place place)
    ctypedef struct fl_store_tree_column:
        fl_store_place place
        uint32_t name_at
        uint32_t name_size
    ctypedef struct fl_store_tree:
        fl_store_place *samples
        fl_store_tree_column *columns
        uint32_t column_count
        char *names
        size_t names_size

cdef extern from "store/table.h" nogil:
    enum:
        FL_TABLE_BLOCK
    ctypedef struct fl_table_file:
        pass
    ctypedef struct fl_table:
        fl_table_file *file
        uint64_t offset
        uint64_t rows
        uint32_t width
        const uint32_t *crcs
    ctypedef struct fl_tables:
        const int64_t *firsts
        const fl_table *tables
        const uint32_t *const *rows
        uint32_t shards
        uint64_t count
    fl_code fl_table_sample_row(const fl_tables *tables, uint64_t index, void *into, fl_error *err)
    fl_code fl_table_file_create(fl_table_file **out, int fd, const char *name, fl_error *err)
    void fl_table_file_free(fl_table_file *file)
    uint64_t fl_table_blocks(uint64_t rows, uint32_t width)
    fl_code fl_table_row(const fl_table *table, uint64_t row, void *into, fl_error *err)
    fl_code fl_table_read(const fl_table *table, uint64_t first, uint64_t count, void *into, fl_error *err)
    uint32_t fl_table_live()

cdef extern from "store/kept.h" nogil:
    ctypedef struct fl_kept:
        pass
    ctypedef enum fl_kept_part:
        FL_KEPT_FACTS
        FL_KEPT_BYTES
        FL_KEPT_FORM
        FL_KEPT_PARTS
    enum:
        FL_KEPT_LOGS, FL_KEPT_HEAD, FL_KEPT_ENTRY
    const char *FL_KEPT_MAGIC
    ctypedef struct fl_kept_counts:
        uint64_t *put
        uint64_t *found
        uint64_t granted, written, left_out
        int failed
    fl_code fl_kept_create(fl_kept **out, int table, uint64_t count, fl_error *err)
    void fl_kept_free(fl_kept *)
    fl_code fl_kept_log(fl_kept *, uint32_t number, int fd, fl_error *err)
    fl_code fl_kept_append(fl_kept *, uint32_t number, uint64_t end, fl_error *err)
    void fl_kept_grant(fl_kept *, uint64_t bytes)
    void fl_kept_count(const fl_kept *, fl_kept_counts *out)
    void fl_kept_entries(const fl_kept *, uint64_t *entries)
    bint fl_kept_find(fl_kept *, uint64_t index, fl_kept_part part, uint64_t stamp, fl_buffer *, fl_span *bytes)
    bint fl_kept_put(fl_kept *, uint64_t index, fl_kept_part part, uint64_t stamp, fl_span bytes)
    uint64_t fl_kept_stamp(const fl_kept *, uint64_t index, fl_kept_part part)
    uint32_t fl_kept_live()

cdef extern from "store/facts.h" nogil:
    ctypedef struct fl_facts:
        pass
    fl_code fl_facts_create(fl_facts **out, uint64_t count, size_t room, fl_error *err)
    void fl_facts_free(fl_facts *)
    void fl_facts_keep(fl_facts *, fl_kept *kept)
    uint64_t fl_facts_stamp(const fl_facts *, uint64_t index)
    void fl_facts_learnt(const fl_facts *, uint64_t *indexes, uint64_t *bytes)
    uint32_t fl_facts_live()

cdef extern from "store/store.h" nogil:
    ctypedef struct fl_store:
        pass
    ctypedef struct fl_store_reader:
        pass
    ctypedef struct fl_shard_spec:
        const char *path
        uint64_t first
        uint64_t count
        uint64_t bytes
        uint64_t key
        uint64_t stored
        const char *base
        bint absent
        bint guarded
        bint foreign
        bint pointed
        uint16_t field
        const fl_store_tree *given
        const fl_table *places
    fl_code fl_store_create(fl_store **out, fl_error *err)
    fl_code fl_store_add(fl_store *store, const fl_shard_spec *spec, fl_error *err)
    void fl_store_close(fl_store *store)
    fl_code fl_store_column_size(const fl_store *store, uint32_t shard, const char *name, size_t *size,
                                 fl_error *err)
    fl_code fl_store_column(const fl_store *store, uint32_t shard, const char *name, void *into, size_t size,
                            fl_error *err)
    const fl_store_tree *fl_store_shard_tree(const fl_store *store, uint32_t shard, uint64_t *stored)
    uint64_t fl_store_count(const fl_store *store)
    uint32_t fl_store_shards(const fl_store *store)
    uint32_t fl_store_shard_of(const fl_store *store, uint64_t index)
    uint64_t fl_store_shard_count(const fl_store *store, uint32_t shard)
    const char *fl_store_base(const fl_store *store, uint64_t index)
    fl_code fl_store_set_rows(fl_store *store, uint32_t shard, const uint32_t *rows, fl_error *err)
    void fl_store_set_checksums(fl_store *store, uint32_t shard, const uint32_t *crc)
    void fl_store_live(uint32_t *stores, uint32_t *readers)
    fl_code fl_store_reader_create(fl_store_reader **out, fl_error *err)
    void fl_store_reader_free(fl_store_reader *reader)
    fl_code fl_store_reader_get(fl_store_reader *reader, const fl_store *store, uint64_t index, fl_span given,
                                fl_span *record, fl_error *err)
    void fl_store_set_facts(fl_store *store, fl_facts *facts)
    bint fl_store_is_foreign(const fl_store *store, uint64_t index)
    bint fl_store_vouches(const fl_store *store, uint64_t index)
    bint fl_store_knows(const fl_store *store, uint64_t index)
    void fl_store_learn(const fl_store *store, uint64_t index, uint32_t crc, fl_span found)

cdef extern from "store/in_flight.h" nogil:
    enum:
        FL_IN_FLIGHT_MOST

cdef extern from "store/files.h" nogil:
    ctypedef struct fl_files:
        pass
    fl_code fl_files_create(fl_files **out, const char *prefix, const char *names, size_t size,
                            uint64_t count, size_t room, fl_error *err)
    ctypedef struct fl_files_places:
        const uint64_t *stamps
        const uint64_t *offsets
        const uint32_t *sizes
        const uint32_t *paths
        uint64_t count
    fl_code fl_files_create_places(fl_files **out, const char *prefix, const char *names, size_t size,
                                   uint64_t count,
                                   const fl_files_places *places, size_t room, fl_error *err)
    void fl_files_take_only(fl_files *, uint64_t kinds)
    ctypedef enum fl_files_keeping:
        FL_FILES_FACTS
        FL_FILES_FORMS
        FL_FILES_BYTES
    void fl_files_shrink(fl_files *, uint32_t side)
    fl_code fl_files_keep(fl_files *, fl_kept *kept, fl_files_keeping keeping, fl_error *err)
    bint fl_files_keeps(const fl_files *, fl_files_keeping keeping)
    fl_code fl_files_read(fl_files *files, uint64_t index, fl_buffer *buffer, fl_span *bytes,
                          uint64_t *stamp, fl_error *err)
    void fl_files_free(fl_files *files)
    uint64_t fl_files_count(const fl_files *files)
    fl_facts *fl_files_facts(const fl_files *files)
    uint32_t fl_files_live()

cdef extern from "store/attached.h" nogil:
    fl_code fl_attached_read(fl_span entry, const char *base, fl_buffer *buffer, fl_span *image,
                             uint64_t *stamp, fl_error *err)

cdef extern from "store/planes.h" nogil:
    ctypedef enum fl_planes_codec:
        FL_PLANES_STORED
        FL_PLANES_RUNS
        FL_PLANES_ZLIB
    ctypedef struct fl_planes:
        uint32_t height, width, channels, pixel
        fl_planes_codec codec
    fl_code fl_planes_open(fl_span entry, fl_planes *out, fl_error *err)
    fl_code fl_planes_box(const fl_planes *planes, fl_box box, void *out, size_t stride, fl_buffer *scratch,
                          fl_error *err)
    fl_code fl_planes_sample(const fl_planes *planes, const uint32_t *rows, uint32_t row_count,
                             const uint32_t *columns,
                             uint32_t column_count, void *out, size_t stride, fl_buffer *scratch,
                             fl_error *err)
    fl_code fl_planes_encode(const void *pixels, uint32_t height, uint32_t width, uint32_t channels,
                             uint32_t depth, fl_buffer *out,
                             size_t *size, fl_error *err)

cdef extern from "store/varying.h" nogil:
    enum:
        FL_VARYING_LEVELS
    ctypedef struct fl_varying:
        uint32_t rows
        fl_span lengths[2]
        fl_span values
    fl_code fl_varying_open(fl_span entry, uint32_t levels, uint32_t unit, fl_varying *out, fl_error *err)

cdef extern from "store/rle.h" nogil:
    ctypedef struct fl_rle_axis:
        uint32_t count
        const uint32_t *edges
    fl_code fl_rle_check(fl_span counts, uint32_t height, uint32_t width, fl_error *err)
    fl_code fl_rle_sample(fl_span counts, uint32_t height, uint32_t width, const fl_rle_axis *rows,
                          const fl_rle_axis *columns,
                          uint8_t *out, size_t stride, fl_error *err)

cdef extern from "store/place.h" nogil:
    fl_code fl_place_open(const char *path, int *fd, struct_stat *st, fl_error *err)
    uint64_t fl_place_stamp(const struct_stat *st)
    uint64_t fl_place_content_stamp(const struct_stat *st)
