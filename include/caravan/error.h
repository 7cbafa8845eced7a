/*
 * Errors are values. A function that can fail returns 0 or one of the negative codes below and,
 * when the caller passed a cvn_err, fills it with one sentence that names what was wrong, what was
 * expected and what to do. Nothing in the library prints, exits or keeps the last error anywhere
 * else.
 *
 *     cvn_err err = {0};
 *     if (cvn_…(…, &err))
 *         fprintf(stderr, "%s\n", err.message);
 *
 * A cvn_err begins as {0}. The first error wins: one that holds an error is left as it is, so that
 * what goes wrong in cleaning up hides no cause. Set it to {0} before it is used again. Where only
 * the code matters, NULL may be given in its place.
 */
#ifndef CARAVAN_ERROR_H
#define CARAVAN_ERROR_H

#ifdef __cplusplus
extern "C" {
#endif

/* code, value, meaning */
#define CVN_ERROR_CODES(X)                                                                         \
    X(CVN_EINVAL, -1, "invalid argument")                                                          \
    X(CVN_EIO, -2, "input or output failed")                                                       \
    X(CVN_EFORMAT, -3, "malformed file or text")                                                   \
    X(CVN_EMEM, -4, "out of memory")                                                               \
    X(CVN_EUNSUPPORTED, -5, "not supported")                                                       \
    X(CVN_ESHAPE, -6, "shapes or types do not fit")                                                \
    X(CVN_EINTERRUPTED, -7, "interrupted")

typedef enum cvn_code {
    CVN_OK = 0,
#define X(name, value, text) name = value,
    CVN_ERROR_CODES(X)
#undef X
} cvn_code;

typedef struct cvn_err {
    int code;           /* CVN_OK or a cvn_code */
    char message[1024]; /* one sentence, no trailing newline; "" when code is CVN_OK */
    const char *file;   /* source position where the error was born, for our own debugging */
    int line;
} cvn_err;

/* A short description of a code, never NULL: "malformed file or text". */
const char *cvn_code_text(int code);

#ifdef __cplusplus
}
#endif
#endif
