/* common/crc32c: the checksum of records and columns. */
#ifndef FL_COMMON_CRC32C_H
#define FL_COMMON_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* CRC32C (Castagnoli; RFC 3720), by the CPU's instruction where common/cpu.h has it, 0 for no bytes; crc
 * continues an earlier one. */
uint32_t fl_crc32c(uint32_t crc, const void *bytes, size_t size);

#endif
