/* What caravan convert does, for another command. */
#ifndef CVN_CLI_CONVERT_H
#define CVN_CLI_CONVERT_H

#include "cli/options.h"
#include "io/model.h"

/* The model `from`, called `name`, as `to` in a type of fewer bits ("int8", "int4:32", "q4_k_m"), what is not quantized being in
   `dtype`, with its own tokenizer or, if not NULL, a file of one; the options of writing folders are taken from the command's. */
int convert_quantized(const Args *args, const char *from, const char *name, const char *to,
                      const char *type, cvn_dtype dtype, const char *tokenizer, cvn_err *err);

#endif
