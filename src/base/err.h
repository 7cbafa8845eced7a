/*
 * How the library's own code raises errors:
 *
 *     if (n < 0)
 *         return err_set(err, CVN_EINVAL, "--threads is %d; give a number from 1 to 1024", n);
 *
 * err_set returns the code, so raising and returning is one statement. The first error wins: a
 * cvn_err that already holds one is left as it is, so cleanup code cannot hide the cause. A message
 * is one line, whatever the names in it hold.
 */
#ifndef CVN_BASE_ERR_H
#define CVN_BASE_ERR_H

#include "caravan/error.h"

#define err_set(err, code, ...) err_set_at((err), (code), __FILE__, __LINE__, __VA_ARGS__)

/* Formats into *err (which may be NULL, or already hold an error) and returns code. */
int err_set_at(cvn_err *err, int code, const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

/* A variable that is released when its scope is left, wherever that is, by a function that takes its address:

       SCOPED(strbuf_free) StrBuf text = {0};
       SCOPED(scoped_free) char *copy = strdup(name); */
#define SCOPED(release) __attribute__((cleanup(release)))
void scoped_free(void *pointer); /* of what malloc gave */

/* Returns from the function with the code of a call that failed; for where nothing but what is SCOPED is to be released. */
#define TRY(call)                                                                                  \
    do {                                                                                           \
        int try_code = (call);                                                                     \
        if (try_code)                                                                              \
            return try_code;                                                                       \
    } while (0)

/* Puts "context: " before the message already in *err; used when a caller knows the file's name. */
void err_prefix(cvn_err *err, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
