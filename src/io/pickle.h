/*
 * The part of Python's pickle that torch.save uses for a dictionary of tensors, read into a tree.
 *
 * A pickle is a program for a stack machine that can call any Python function. This interpreter
 * runs no function: it knows the opcodes below and the few names that a state dict needs, builds
 * values, and refuses every other opcode and name by name.
 *
 *   PROTO 80 FRAME 95 STOP .         MARK (  POP 0
 *   NONE N  NEWTRUE 88  NEWFALSE 89  BININT J  BININT1 K  BININT2 M  LONG1 8a  BINFLOAT G
 *   BINUNICODE X  SHORT_BINUNICODE 8c
 *   EMPTY_TUPLE )  TUPLE t  TUPLE1..3 85..87   EMPTY_LIST ]  APPEND a  APPENDS e
 *   EMPTY_DICT }  SETITEM s  SETITEMS u
 *   BINPUT q  LONG_BINPUT r  MEMOIZE 94  BINGET h  LONG_BINGET j
 *   GLOBAL c  STACK_GLOBAL 93  REDUCE R  BUILD b  BINPERSID Q
 */
#ifndef CVN_IO_PICKLE_H
#define CVN_IO_PICKLE_H

#include "base/arena.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum PickleType {
    PICKLE_MARK, /* only on the stack */
    PICKLE_NONE,
    PICKLE_BOOL,
    PICKLE_INT,
    PICKLE_FLOAT,
    PICKLE_STRING,
    PICKLE_GLOBAL, /* a name: text is "module name" */
    PICKLE_TUPLE,
    PICKLE_LIST,
    PICKLE_DICT,       /* items: key, value, key, value, …; OrderedDict too */
    PICKLE_PERSISTENT, /* items[0] is the id of something outside of the pickle (a storage) */
    PICKLE_CALL, /* items[0] is the global that would be called, items[1] its tuple of arguments */
} PickleType;

typedef struct PickleItems PickleItems;

typedef struct PickleValue {
    PickleType type;
    union {
        int64_t integer;  /* BOOL, INT */
        double real;      /* FLOAT */
        const char *text; /* STRING, GLOBAL; NUL-terminated, no NUL inside */
        /* TUPLE, LIST, DICT, PERSISTENT, CALL; shared by all copies of the value. */
        PickleItems *items;
    } as;
} PickleValue;

struct PickleItems {
    PickleValue *value; /* [n] */
    size_t n, capacity;
};

/* The largest pickle that is read; state dicts have about a hundred bytes per tensor. */
#define PICKLE_MAX ((size_t)4 << 20)

/* Everything lives in the arena. A dictionary may contain itself: who walks the tree bounds the
 * depth. */
int pickle_read(PickleValue *result, const char *file, const uint8_t *data, size_t size,
                Arena *arena, cvn_err *err);

#endif
