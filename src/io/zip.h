/*
 * The index of a zip archive whose entries are stored (not compressed), as torch.save writes them:
 * where each entry's bytes lie in the mapped file.
 *
 *   end of file            "PK\5\6"  22 bytes + comment: number of entries, size and offset of the
 * directory before it, if large    "PK\6\7"  20 bytes: offset of the zip64 end record "PK\6\6" with
 * 64-bit values directory, per entry   "PK\1\2"  46 bytes + name, extra, comment: method, sizes,
 * offset of the entry each entry             "PK\3\4"  30 bytes + name, extra; then the data
 *
 * A value of 0xffffffff in a directory entry stands in the zip64 extra field (id 1) instead.
 * (Format: APPNOTE.TXT of PKWARE.) Offsets and sizes are checked against the file before they are
 * used.
 */
#ifndef CVN_IO_ZIP_H
#define CVN_IO_ZIP_H

#include "base/map.h"

typedef struct ZipEntry {
    const char *name; /* in the arena */
    const uint8_t *data;
    size_t size; /* bytes, all inside of the file */
} ZipEntry;

typedef struct Zip {
    ZipEntry *entry; /* [n], in the arena */
    size_t n;
    Map by_name; /* name -> index */
} Zip;

int zip_read(Zip *zip, const char *file, const uint8_t *data, size_t size, Arena *arena,
             cvn_err *err);

/* NULL when there is no such entry. */
const ZipEntry *zip_find(const Zip *zip, const char *name);

#endif
