/* Tables of published rows on arbitrary bytes: what is read has all its fields, and every row becomes a question or is refused. */
#include "sim/rows.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    cvn_err err = {0};
    Arena arena;
    Csv csv;
    if (arena_init(&arena, &err))
        return 0;
    if (csv_parse(&csv, "fuzz", (const char *)data, size, &arena, &err) == CVN_OK)
        for (int64_t i = 0; i < csv.rows; i++) {
            RowQuestion question;
            for (int c = 0; c < csv.columns; c++)
                if (strlen(csv.field[i * csv.columns + c]) > size)
                    abort();
            if (rows_ask(&csv, i, &question, &err) == CVN_OK &&
                !(question.serving.tp >= 1 || question.training.tp >= 1))
                abort();
        }
    arena_free(&arena);
    return 0;
}
