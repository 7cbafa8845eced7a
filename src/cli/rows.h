/* Tables of questions for simulate --rows: what each row says, and how far it is from what was measured. */
#ifndef CVN_CLI_ROWS_H
#define CVN_CLI_ROWS_H

#include "base/err.h"

#include <stdbool.h>

/* As a table in Markdown, with a summary of errors; or as a JSON object a row. */
int answer_rows(const char *path, bool json, cvn_err *err);

#endif
