/*
 * A number of bytes as people read it: three digits and the
 * unit that suits it, "512 bytes", "9.77 KiB", "1.50 GiB".
 * The text is a value, for printf:
 *
 *     printf("%s are free\n", bytes_text(1536).text);       1.50 KiB are free
 */
#ifndef CVN_BASE_BYTES_H
#define CVN_BASE_BYTES_H

typedef struct ByteText {
    char text[32];
} ByteText;

ByteText bytes_text(double bytes);

#endif
