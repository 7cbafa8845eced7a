#include "io/pickle.h"

#include "io/tensor.h"

#include <stdio.h>
#include <string.h>

/* The names a state dict may mention. None is called. */
static const char *const allowed_globals[] = {
    "torch._utils _rebuild_tensor_v2",
    "torch._utils _rebuild_parameter",
    "collections OrderedDict",
    "torch FloatStorage",
    "torch HalfStorage",
    "torch BFloat16Storage",
    "torch DoubleStorage",
    "torch LongStorage",
    "torch IntStorage",
    "torch ShortStorage",
    "torch CharStorage",
    "torch ByteStorage",
    "torch BoolStorage",
};

/* The machine. Memory use is bounded: every opcode makes at most one value, memo slots are at most
 * as many as there are bytes. */
typedef struct Machine {
    const char *file;
    const uint8_t *at, *end; /* what is left of the program */
    size_t size;             /* of the whole program */
    Arena *arena;
    cvn_err *err;
    PickleItems stack;
    PickleItems memo;
} Machine;

static int malformed(const Machine *m, const char *what)
{
    return err_set(m->err, CVN_EFORMAT, "'%s': the pickle is malformed: %s", m->file, what);
}

static void append(Machine *m, PickleItems *items, PickleValue value)
{
    if (items->n == items->capacity) {
        size_t capacity = items->capacity ? items->capacity * 2 : 4;
        PickleValue *grown = arena_array(m->arena, capacity, sizeof *grown);
        if (items->n)
            memcpy(grown, items->value, items->n * sizeof *grown);
        items->value = grown;
        items->capacity = capacity;
    }
    items->value[items->n++] = value;
}

static int push(Machine *m, PickleValue value)
{
    append(m, &m->stack, value);
    return CVN_OK;
}

static int push_int(Machine *m, PickleType type, int64_t integer)
{
    return push(m, (PickleValue){.type = type, .as.integer = integer});
}

/* A new container holding the top n values of the stack, which it replaces. */
static int collect(Machine *m, PickleType type, size_t n)
{
    PickleItems *items = arena_alloc(m->arena, sizeof *items);
    if (m->stack.n < n)
        return malformed(m, "the stack is empty");
    for (size_t i = m->stack.n - n; i < m->stack.n; i++) {
        if (m->stack.value[i].type == PICKLE_MARK)
            return malformed(m, "a mark is in the way");
        append(m, items, m->stack.value[i]);
    }
    m->stack.n -= n;
    return push(m, (PickleValue){.type = type, .as.items = items});
}

/* How many values are above the topmost mark. */
static int above_mark(Machine *m, size_t *n)
{
    for (*n = 0; *n < m->stack.n; ++*n)
        if (m->stack.value[m->stack.n - 1 - *n].type == PICKLE_MARK)
            return CVN_OK;
    return malformed(m, "there is no mark");
}

/* Takes n bytes of an instruction's argument; NULL with an error where they are not there. */
static const uint8_t *take(Machine *m, size_t n)
{
    if ((size_t)(m->end - m->at) < n) {
        malformed(m, "it ends early");
        return NULL;
    }
    m->at += n;
    return m->at - n;
}

static int take_unsigned(Machine *m, int bytes, size_t *out)
{
    const uint8_t *p = take(m, (size_t)bytes);
    uint64_t v = 0;
    if (!p)
        return CVN_EFORMAT;
    memcpy(&v, p, (size_t)bytes);
    *out = (size_t)v;
    return CVN_OK;
}

/* A little-endian two's complement number of `bytes` bytes. */
static int op_int(Machine *m, size_t bytes)
{
    const uint8_t *p = take(m, bytes);
    uint64_t v = 0;
    if (!p)
        return CVN_EFORMAT;
    if (bytes > 8)
        return malformed(m, "an integer has more than 64 bits");
    memcpy(&v, p, bytes);
    if (bytes > 0 && bytes < 8 && p[bytes - 1] & 0x80)
        v |= UINT64_MAX << (8 * bytes);
    return push_int(m, PICKLE_INT, (int64_t)v);
}

static int op_float(Machine *m) /* big endian, unlike the rest */
{
    const uint8_t *p = take(m, 8);
    uint64_t bits;
    PickleValue value = {.type = PICKLE_FLOAT};
    if (!p)
        return CVN_EFORMAT;
    memcpy(&bits, p, 8);
    bits = __builtin_bswap64(bits);
    memcpy(&value.as.real, &bits, 8);
    return push(m, value);
}

static int op_string(Machine *m, int length_bytes)
{
    size_t n = 0;
    if (take_unsigned(m, length_bytes, &n) != CVN_OK)
        return CVN_EFORMAT;
    const uint8_t *p = take(m, n);
    if (!p)
        return CVN_EFORMAT;
    if (memchr(p, 0, n))
        return malformed(m, "a string contains a NUL");
    return push(m, (PickleValue){.type = PICKLE_STRING,
                                 .as.text = arena_stringn(m->arena, (const char *)p, n)});
}

static int push_global(Machine *m, const char *module, int module_n, const char *name, int name_n)
{
    char text[128];
    int n = snprintf(text, sizeof text, "%.*s %.*s", module_n, module, name_n, name);
    for (size_t i = 0; n > 0 && i < sizeof allowed_globals / sizeof *allowed_globals; i++)
        if (strcmp(text, allowed_globals[i]) == 0)
            return push(m, (PickleValue){.type = PICKLE_GLOBAL, .as.text = allowed_globals[i]});
    return err_set(m->err, CVN_EUNSUPPORTED,
                   "'%s': the pickle calls '%s', which is not part of a dictionary of tensors",
                   m->file, text);
}

static int op_global(Machine *m) /* two lines of text: module, name */
{
    const uint8_t *first = m->at;
    const uint8_t *newline = memchr(first, '\n', (size_t)(m->end - first));
    const uint8_t *second = newline ? newline + 1 : NULL;
    const uint8_t *last = second ? memchr(second, '\n', (size_t)(m->end - second)) : NULL;
    if (!last || last - first > 100)
        return malformed(m, "a name is not terminated");
    m->at = last + 1;
    return push_global(m, (const char *)first, (int)(newline - first), (const char *)second,
                       (int)(last - second));
}

static int op_stack_global(Machine *m)
{
    if (m->stack.n < 2)
        return malformed(m, "the stack is empty");
    const PickleValue *top = &m->stack.value[m->stack.n - 2];
    if (top[0].type != PICKLE_STRING || top[1].type != PICKLE_STRING)
        return malformed(m, "a name is not a string");
    m->stack.n -= 2;
    return push_global(m, top[0].as.text, (int)strnlen(top[0].as.text, 100), top[1].as.text,
                       (int)strnlen(top[1].as.text, 100));
}

static int op_put(Machine *m, size_t index)
{
    if (m->stack.n == 0 || index > m->size)
        return malformed(m, "a memo slot is out of range");
    while (m->memo.n <= index)
        append(m, &m->memo, (PickleValue){.type = PICKLE_MARK});
    m->memo.value[index] = m->stack.value[m->stack.n - 1];
    return CVN_OK;
}

static int op_get(Machine *m, size_t index)
{
    if (index >= m->memo.n || m->memo.value[index].type == PICKLE_MARK)
        return malformed(m, "an empty memo slot is read");
    return push(m, m->memo.value[index]);
}

/* Moves the n values on top of the stack into the container under them. */
static int op_extend(Machine *m, PickleType type, size_t n)
{
    if (m->stack.n < n + 1)
        return malformed(m, "the stack is empty");
    size_t first = m->stack.n - n;
    PickleValue target = m->stack.value[first - 1];
    if (target.type != type || (type == PICKLE_DICT && n % 2 != 0))
        return malformed(m, "items are put into something that takes none");
    for (size_t i = 0; i < n; i++) {
        if (m->stack.value[first + i].type == PICKLE_MARK)
            return malformed(m, "a mark is in the way");
        append(m, target.as.items, m->stack.value[first + i]);
    }
    m->stack.n = first;
    return CVN_OK;
}

/* The same for the values above a mark, which is removed from between. */
static int op_extend_mark(Machine *m, PickleType type)
{
    size_t n = 0;
    TRY(above_mark(m, &n));
    PickleValue *mark = &m->stack.value[m->stack.n - 1 - n];
    memmove(mark, mark + 1, n * sizeof *mark);
    m->stack.n--;
    return op_extend(m, type, n);
}

static int op_tuple(Machine *m)
{
    size_t n = 0;
    int code = above_mark(m, &n);
    if (code == CVN_OK)
        code = collect(m, PICKLE_TUPLE, n);
    if (code != CVN_OK)
        return code;
    m->stack.value[m->stack.n - 2] = m->stack.value[m->stack.n - 1];
    m->stack.n--;
    return CVN_OK;
}

static int op_reduce(Machine *m)
{
    if (m->stack.n < 2)
        return malformed(m, "the stack is empty");
    const PickleValue *top = &m->stack.value[m->stack.n - 2];
    if (top[0].type != PICKLE_GLOBAL || top[1].type != PICKLE_TUPLE)
        return malformed(m, "the called object is not a name");
    if (strcmp(top[0].as.text, "collections OrderedDict") != 0)
        return collect(m, PICKLE_CALL, 2);
    if (top[1].as.items->n != 0)
        return malformed(m, "an OrderedDict is made from arguments");
    m->stack.n -= 2;
    return collect(m, PICKLE_DICT, 0);
}

/* Drops the attributes that torch gives an OrderedDict (_metadata): they say nothing about the tensors. */
static int op_build(Machine *m)
{
    if (m->stack.n < 2 || m->stack.value[m->stack.n - 2].type != PICKLE_DICT)
        return malformed(m, "attributes are set on something that has none");
    m->stack.n--;
    return CVN_OK;
}

static int step_value(Machine *m, uint8_t op)
{
    size_t n = 0;
    switch (op) {
    case 'N':
        return push_int(m, PICKLE_NONE, 0);
    case 0x88:
    case 0x89:
        return push_int(m, PICKLE_BOOL, op == 0x88);
    case 'J':
        return op_int(m, 4);
    case 'K':
    case 'M':
        return take_unsigned(m, op == 'K' ? 1 : 2, &n) ? CVN_EFORMAT
                                                       : push_int(m, PICKLE_INT, (int64_t)n);
    case 0x8a:
        return take_unsigned(m, 1, &n) ? CVN_EFORMAT : op_int(m, n);
    case 'G':
        return op_float(m);
    case 'X':
        return op_string(m, 4);
    case 0x8c:
        return op_string(m, 1);
    case 'c':
        return op_global(m);
    default:
        return err_set(
            m->err, CVN_EUNSUPPORTED,
            "'%s': the pickle uses opcode 0x%02x, which a dictionary of tensors does not "
            "need",
            m->file, op);
    }
}

static int step(Machine *m, uint8_t op)
{
    size_t n = 0;
    switch (op) {
    case 0x80: /* PROTO: protocols differ in opcodes only */
        return take(m, 1) ? CVN_OK : CVN_EFORMAT;
    case 0x95: /* FRAME: a hint for buffering */
        return take(m, 8) ? CVN_OK : CVN_EFORMAT;
    case '(':
        return push_int(m, PICKLE_MARK, 0);
    case '0':
        return m->stack.n ? (m->stack.n--, CVN_OK) : malformed(m, "the stack is empty");
    case ')':
        return collect(m, PICKLE_TUPLE, 0);
    case ']':
        return collect(m, PICKLE_LIST, 0);
    case '}':
        return collect(m, PICKLE_DICT, 0);
    case 't':
        return op_tuple(m);
    case 0x85:
    case 0x86:
    case 0x87:
        return collect(m, PICKLE_TUPLE, op - 0x84u);
    case 'a':
        return op_extend(m, PICKLE_LIST, 1);
    case 'e':
        return op_extend_mark(m, PICKLE_LIST);
    case 's':
        return op_extend(m, PICKLE_DICT, 2);
    case 'u':
        return op_extend_mark(m, PICKLE_DICT);
    case 'q':
        return take_unsigned(m, 1, &n) ? CVN_EFORMAT : op_put(m, n);
    case 'r':
        return take_unsigned(m, 4, &n) ? CVN_EFORMAT : op_put(m, n);
    case 0x94:
        return op_put(m, m->memo.n);
    case 'h':
        return take_unsigned(m, 1, &n) ? CVN_EFORMAT : op_get(m, n);
    case 'j':
        return take_unsigned(m, 4, &n) ? CVN_EFORMAT : op_get(m, n);
    case 'Q':
        return collect(m, PICKLE_PERSISTENT, 1);
    case 0x93:
        return op_stack_global(m);
    case 'R':
        return op_reduce(m);
    case 'b':
        return op_build(m);
    default:
        return step_value(m, op);
    }
}

int pickle_read(PickleValue *result, const char *file, const uint8_t *data, size_t size,
                Arena *arena, cvn_err *err)
{
    Machine m = {
        .file = file, .at = data, .end = data + size, .size = size, .arena = arena, .err = err};
    if (size > PICKLE_MAX)
        return err_set(err, CVN_EFORMAT, "'%s': the pickle has %zu bytes; the maximum is %zu", file,
                       size, PICKLE_MAX);
    while (m.at < m.end) {
        uint8_t op = *m.at++;
        if (op == '.') {
            if (m.stack.n != 1 || m.stack.value[0].type == PICKLE_MARK)
                return malformed(&m, "it leaves more or less than one value");
            *result = m.stack.value[0];
            return CVN_OK;
        }
        int code = step(&m, op);
        if (code != CVN_OK)
            return code;
    }
    return malformed(&m, "it ends early");
}
