/* Values: making them, and asking them what Python's would say. */
#include "text/jinja/impl.h"

#include "text/utf8.h"

#include <math.h>
#include <string.h>

/* ---- making ---- */

JinjaValue v_str(JinjaRun *r, Str s)
{
    Str *str = j_take(r, sizeof *str);
    *str = s;
    return (JinjaValue){.type = V_STR, .str = str};
}

JinjaValue v_own(JinjaRun *r, const char *text)
{
    size_t n = strlen(text);
    char *mark = j_take(r, n + 1);
    memset(mark, JINJA_OWN, n);
    return v_str(r, (Str){text, mark, n});
}

JinjaValue v_seq(JinjaRun *r, ValueType type, JinjaValue *item, size_t n)
{
    Seq *seq = j_take(r, sizeof *seq);
    *seq = (Seq){item, n};
    return (JinjaValue){.type = type, .seq = seq};
}

void j_items_add(JinjaRun *r, Items *items, JinjaValue value)
{
    j_take(r, 1); /* looks at what has been taken */
    if (r->rc)
        return;
    items->item = arena_more(&r->arena, items->item, items->n, sizeof *items->item);
    items->item[items->n++] = value;
}

void j_dict_set(JinjaRun *r, Dict *dict, JinjaValue key, JinjaValue value)
{
    if (key.type == V_LIST || key.type == V_DICT || key.type == V_NAMESPACE) {
        j_fail(r, "a %s cannot be a key", v_type_name(key));
        return;
    }
    for (size_t i = 0; i < dict->n && j_step(r, 1); i++) {
        if (v_equal(r, dict->pair[i].key, key)) {
            dict->pair[i].value = value;
            return;
        }
    }
    j_take(r, 1);
    if (r->rc)
        return;
    dict->pair = arena_more(&r->arena, dict->pair, dict->n, sizeof *dict->pair);
    dict->pair[dict->n++] = (JinjaPair){key, value};
}

static JinjaValue json_text_value(JinjaRun *r, const char *text, size_t n, char mark)
{
    JinjaWriter copy = {0};
    j_text_bytes(r, &copy, text, n, mark);
    return j_text_value(r, &copy);
}

/* Whether what stands under a key of the data may be part of a marker. */
static bool is_own_word(const JinjaRun *r, const char *key, const json_t *member)
{
    const char *const *word = r->input->own_words, *text = json_string_value(member);
    if (!text || !word || strcmp(key, r->input->own_key) != 0)
        return false;
    while (*word && strcmp(*word, text) != 0)
        word++;
    return *word != NULL;
}

JinjaValue v_from_json(JinjaRun *r, const json_t *json, char mark)
{
    JinjaValue value = v_none();
    const char *key;
    json_t *member;
    size_t n = json_is_object(json) ? json_object_size(json) : json_array_size(json);
    if (!j_step(r, 1) || !j_deeper(r))
        return value;
    switch (json_typeof(json)) {
    case JSON_OBJECT: {
        Dict *dict = j_take(r, sizeof *dict);
        dict->pair = arena_array(&r->arena, n, sizeof *dict->pair);
        json_object_foreach((json_t *)json, key, member)
        {
            JinjaPair *pair = &dict->pair[dict->n++];
            pair->key = json_text_value(r, key, strlen(key), mark);
            pair->value = v_from_json(r, member, is_own_word(r, key, member) ? JINJA_OWN : mark);
        }
        value = (JinjaValue){.type = V_DICT, .dict = dict};
        break;
    }
    case JSON_ARRAY: {
        JinjaValue *item = arena_array(&r->arena, n, sizeof *item);
        for (size_t i = 0; i < n; i++)
            item[i] = v_from_json(r, json_array_get(json, i), mark);
        value = v_seq(r, V_LIST, item, n);
        break;
    }
    case JSON_STRING:
        value = json_text_value(r, json_string_value(json), json_string_length(json), mark);
        break;
    case JSON_INTEGER:
        value = v_int(json_integer_value(json));
        break;
    case JSON_REAL:
        value = v_float(json_real_value(json));
        break;
    case JSON_TRUE:
    case JSON_FALSE:
        value = v_bool(json_is_true(json));
        break;
    case JSON_NULL:
        break;
    }
    r->depth--;
    return value;
}

/* ---- kinds ---- */

const char *v_type_name(JinjaValue v)
{
    static const char *const name[] = {
        [V_ABSENT] = "value that is not there",
        [V_UNDEFINED] = "undefined value",
        [V_NONE] = "None",
        [V_BOOL] = "bool",
        [V_INT] = "int",
        [V_FLOAT] = "float",
        [V_STR] = "str",
        [V_LIST] = "list",
        [V_TUPLE] = "tuple",
        [V_RANGE] = "range",
        [V_ITER] = "generator",
        [V_DICT] = "dict",
        [V_NAMESPACE] = "namespace",
        [V_LOOP] = "loop",
        [V_MACRO] = "macro",
        [V_METHOD] = "method",
        [V_FUNCTION] = "function",
    };
    return name[v.type];
}

bool v_is_seq(JinjaValue v)
{
    return v.type >= V_LIST && v.type <= V_ITER;
}

bool v_is_number(JinjaValue v)
{
    return v.type >= V_BOOL && v.type <= V_FLOAT;
}

double v_real(JinjaValue v)
{
    return v.type == V_FLOAT ? v.f : v.type == V_INT ? (double)v.i : v.b;
}

bool v_true(JinjaValue v)
{
    switch (v.type) {
    case V_ABSENT:
    case V_UNDEFINED:
    case V_NONE:
        return false;
    case V_BOOL:
        return v.b;
    case V_INT:
        return v.i != 0;
    case V_FLOAT:
        return v.f != 0;
    case V_STR:
        return v.str->n > 0;
    case V_LIST:
    case V_TUPLE:
    case V_RANGE:
        return v.seq->n > 0;
    case V_ITER:
        return !v.flag || v.seq->n > 0;
    case V_DICT:
        return v.dict->n > 0;
    default:
        return true;
    }
}

int64_t v_to_int(JinjaRun *r, JinjaValue v, const char *what)
{
    if (v.type == V_BOOL)
        return v.b;
    if (v.type == V_INT)
        return v.i;
    j_fail(r, "%s is a %s; an integer is expected", what, v_type_name(v));
    return 0;
}

/* ---- comparing ---- */

static int int_order(int64_t a, int64_t b)
{
    return a < b ? -1 : a > b;
}

static int number_order(JinjaValue a, JinjaValue b)
{
    if (a.type != V_FLOAT && b.type != V_FLOAT)
        return int_order(a.type == V_INT ? a.i : a.b, b.type == V_INT ? b.i : b.b);
    double x = v_real(a), y = v_real(b);
    return x < y ? -1 : x > y;
}

static int str_order(JinjaRun *r, Str a, Str b)
{
    size_t n = a.n < b.n ? a.n : b.n;
    j_step(r, n / 64);
    int order = n ? memcmp(a.text, b.text, n) : 0;
    return order ? order : a.n < b.n ? -1 : a.n > b.n;
}

static bool seq_equal(JinjaRun *r, const Seq *a, const Seq *b)
{
    bool equal = a->n == b->n;
    if (!equal || !j_deeper(r))
        return equal;
    for (size_t i = 0; i < a->n && equal && j_step(r, 1); i++)
        equal = v_equal(r, a->item[i], b->item[i]);
    r->depth--;
    return equal;
}

static bool dict_equal(JinjaRun *r, const Dict *a, const Dict *b)
{
    bool equal = a->n == b->n;
    if (!equal || !j_deeper(r))
        return equal;
    for (size_t i = 0; i < a->n && equal; i++) {
        size_t k = 0;
        while (k < b->n && j_step(r, 1) && !v_equal(r, a->pair[i].key, b->pair[k].key))
            k++;
        equal = k < b->n && v_equal(r, a->pair[i].value, b->pair[k].value);
    }
    r->depth--;
    return equal;
}

bool v_equal(JinjaRun *r, JinjaValue a, JinjaValue b)
{
    if (v_is_number(a) && v_is_number(b))
        return (a.type != V_FLOAT || !isnan(a.f)) && (b.type != V_FLOAT || !isnan(b.f)) &&
               number_order(a, b) == 0;
    if (a.type != b.type)
        return false;
    switch (a.type) {
    case V_STR:
        return a.str->n == b.str->n && str_order(r, *a.str, *b.str) == 0;
    case V_LIST:
    case V_TUPLE:
    case V_RANGE:
        return seq_equal(r, a.seq, b.seq);
    case V_DICT:
        return dict_equal(r, a.dict, b.dict);
    case V_UNDEFINED:
    case V_NONE:
        return true;
    case V_FUNCTION:
        return a.function == b.function;
    default:
        return a.dict == b.dict; /* the same thing */
    }
}

int v_order(JinjaRun *r, JinjaValue a, JinjaValue b)
{
    if (v_is_number(a) && v_is_number(b))
        return number_order(a, b);
    if (a.type == V_STR && b.type == V_STR)
        return str_order(r, *a.str, *b.str);
    if (a.type == b.type && (a.type == V_LIST || a.type == V_TUPLE)) {
        if (!j_deeper(r))
            return 0;
        size_t i = 0;
        while (i < a.seq->n && i < b.seq->n && j_step(r, 1) &&
               v_equal(r, a.seq->item[i], b.seq->item[i]))
            i++;
        int order = i < a.seq->n && i < b.seq->n ? v_order(r, a.seq->item[i], b.seq->item[i])
                                                 : int_order((int64_t)a.seq->n, (int64_t)b.seq->n);
        r->depth--;
        return order;
    }
    if (!r->rc)
        j_fail(r, "a %s and a %s cannot be ordered", v_type_name(a), v_type_name(b));
    return 0;
}

bool v_in(JinjaRun *r, JinjaValue item, JinjaValue container)
{
    if (container.type == V_STR) {
        if (item.type == V_STR)
            return str_find(r, *container.str, *item.str, 0) != SIZE_MAX;
        j_fail(r, "'in' on a str needs a str, not a %s", v_type_name(item));
        return false;
    }
    if (container.type == V_DICT) {
        for (size_t i = 0; i < container.dict->n && j_step(r, 1); i++)
            if (v_equal(r, container.dict->pair[i].key, item))
                return true;
        return false;
    }
    Seq items = v_items(r, container);
    for (size_t i = 0; i < items.n && j_step(r, 1); i++)
        if (v_equal(r, items.item[i], item))
            return true;
    return false;
}

/* ---- what is in them ---- */

JinjaValue *j_dict_get(const Dict *dict, const char *name)
{
    for (size_t i = 0; i < dict->n; i++)
        if (dict->pair[i].key.type == V_STR && str_is(*dict->pair[i].key.str, name))
            return &dict->pair[i].value;
    return NULL;
}

int64_t v_length(JinjaRun *r, JinjaValue v)
{
    switch (v.type) {
    case V_UNDEFINED:
        return 0;
    case V_STR:
        j_step(r, v.str->n / 64);
        return (int64_t)str_points(*v.str);
    case V_LIST:
    case V_TUPLE:
    case V_RANGE:
        return (int64_t)v.seq->n;
    case V_DICT:
        return (int64_t)v.dict->n;
    case V_ITER:
        if (v.flag)
            return (int64_t)v.seq->n;
        break;
    case V_LOOP:
        return (int64_t)v.loop->n;
    default:
        break;
    }
    j_fail(r, "a %s has no length", v_type_name(v));
    return 0;
}

Seq v_items(JinjaRun *r, JinjaValue v)
{
    Items items = {0};
    if (r->rc)
        return (Seq){0};
    switch (v.type) {
    case V_UNDEFINED:
        break;
    case V_LIST:
    case V_TUPLE:
    case V_RANGE:
        return *v.seq;
    case V_ITER: {
        Seq seq = *v.seq;
        if (!v.flag)
            v.seq->n = 0;
        return seq;
    }
    case V_STR:
        for (size_t i = 0, n; i < v.str->n && j_step(r, 1); i += n) {
            n = (size_t)utf8_need((unsigned char)v.str->text[i]);
            j_items_add(r, &items, v_str(r, str_part(*v.str, i, i + n)));
        }
        break;
    case V_DICT:
        for (size_t i = 0; i < v.dict->n && j_step(r, 1); i++)
            j_items_add(r, &items, v.dict->pair[i].key);
        break;
    default:
        j_fail(r, "a %s is not iterable", v_type_name(v));
    }
    return (Seq){items.item, items.n};
}

/* An index that counts from the end when it is negative; false when it is outside of [0, n). */
static bool index_of(int64_t i, size_t n, size_t *index)
{
    if (i < 0)
        i += (int64_t)n;
    *index = (size_t)i;
    return i >= 0 && (size_t)i < n;
}

static bool loop_attribute(const JinjaLoop *loop, const char *name, JinjaValue *value)
{
    const int64_t i = (int64_t)loop->i, n = (int64_t)loop->n;
    const struct {
        const char *name;
        JinjaValue value;
    } table[] = {
        {"index", v_int(i + 1)},
        {"index0", v_int(i)},
        {"revindex", v_int(n - i)},
        {"revindex0", v_int(n - i - 1)},
        {"first", v_bool(i == 0)},
        {"last", v_bool(i == n - 1)},
        {"length", v_int(n)},
        {"depth", /* of recursion, which there is none of */
         v_int(1)},
        {"depth0", v_int(0)},
        {"previtem", i > 0 ? loop->item[i - 1] : v_undefined("there is no previous item")},
        {"nextitem", i + 1 < n ? loop->item[i + 1] : v_undefined("there is no next item")},
    };
    for (size_t k = 0; k < sizeof table / sizeof *table; k++) {
        if (strcmp(table[k].name, name) == 0) {
            *value = table[k].value;
            return true;
        }
    }
    return false;
}

/* Looks up a string key among members, or attributes of loops and namespaces. */
static bool member(JinjaValue v, const char *name, JinjaValue *value)
{
    if (v.type == V_LOOP)
        return loop_attribute(v.loop, name, value);
    const JinjaValue *found =
        v.type == V_DICT || v.type == V_NAMESPACE ? j_dict_get(v.dict, name) : NULL;
    if (found)
        *value = *found;
    return found != NULL;
}

static JinjaValue not_there(JinjaRun *r, JinjaValue v, const char *name)
{
    if (v.type == V_UNDEFINED)
        return j_fail(r, "'%.60s' is undefined and has no attribute '%.60s'",
                      v.missing ? v.missing : "", name);
    return v_undefined(name);
}

static const char *c_string(JinjaRun *r, Str s)
{
    char *text = j_take(r, s.n + 1);
    if (s.n)
        memcpy(text, s.text, s.n);
    return text;
}

static JinjaValue method_of(JinjaRun *r, JinjaValue v, const char *name)
{
    const Builtin *row = j_method_find(v.type, name);
    if (!row)
        return not_there(r, v, name);
    Method *method = j_take(r, sizeof *method);
    *method = (Method){row, v};
    return (JinjaValue){.type = V_METHOD, .method = method};
}

JinjaValue v_attribute(JinjaRun *r, JinjaValue v, const char *name)
{
    JinjaValue value;
    if (r->rc)
        return v_undefined(NULL);
    if (v.type == V_DICT && j_method_find(V_DICT, name))
        return method_of(r, v, name);
    j_step(r, v.type == V_DICT ? v.dict->n / 8 : 0);
    return member(v, name, &value) ? value : method_of(r, v, name);
}

JinjaValue v_item(JinjaRun *r, JinjaValue v, JinjaValue key)
{
    JinjaValue value;
    size_t i;
    if (r->rc)
        return v_undefined(NULL);
    if (key.type == V_STR) {
        const char *name = c_string(r, *key.str);
        j_step(r, v.type == V_DICT ? v.dict->n / 8 : 0);
        return member(v, name, &value) ? value : method_of(r, v, name);
    }
    if (v.type == V_DICT) {
        for (i = 0; i < v.dict->n && j_step(r, 1); i++)
            if (v_equal(r, v.dict->pair[i].key, key))
                return v.dict->pair[i].value;
        return v_undefined("a key");
    }
    if (key.type != V_INT && key.type != V_BOOL)
        return not_there(r, v, "an item");
    int64_t at = key.type == V_INT ? key.i : key.b;
    if (v.type == V_STR) {
        bool inside = index_of(at, str_points(*v.str), &i);
        j_step(r, v.str->n / 64);
        return inside ? v_str(r, str_part(*v.str, str_offset(*v.str, i), str_offset(*v.str, i + 1)))
                      : v_undefined("a character");
    }
    if (!v_is_seq(v) || v.type == V_ITER)
        return not_there(r, v, "an item");
    return index_of(at, v.seq->n, &i) ? v.seq->item[i] : v_undefined("an item");
}

static int64_t bound(JinjaRun *r, JinjaValue v, int64_t usual, int64_t n, bool back)
{
    if (v.type == V_NONE)
        return usual;
    int64_t i = v_to_int(r, v, "the bound of a slice"), low = back ? -1 : 0,
            high = back ? n - 1 : n;
    if (i < 0)
        i += n;
    return i < low ? low : i > high ? high : i;
}

JinjaValue v_slice(JinjaRun *r, JinjaValue v, JinjaValue from, JinjaValue to, JinjaValue by)
{
    if (r->rc)
        return v_undefined(NULL);
    if (v.type != V_STR && (!v_is_seq(v) || v.type == V_ITER))
        return v.type == V_UNDEFINED ? not_there(r, v, "a slice") : v_undefined("a slice");
    int64_t n = v_length(r, v),
            pace = by.type == V_NONE ? 1 : v_to_int(r, by, "the step of a slice");
    if (pace == 0)
        return j_fail(r, "a slice has step 0");
    bool back = pace < 0;
    int64_t i = bound(r, from, back ? n - 1 : 0, n, back),
            end = bound(r, to, back ? -1 : n, n, back);
    if (r->rc)
        return v_undefined(NULL);
    if (v.type == V_STR && pace == 1) {
        size_t begin = str_offset(*v.str, (size_t)i),
               stop = end > i ? str_offset(*v.str, (size_t)end) : begin;
        return v_str(r, str_part(*v.str, begin, stop));
    }
    Seq items = v_items(r, v);
    Items kept = {0};
    while ((back ? i > end : i < end) && j_step(r, 1)) {
        j_items_add(r, &kept, items.item[i]);
        if (__builtin_add_overflow(i, pace, &i))
            break;
    }
    if (v.type != V_STR)
        return v_seq(r, v.type, kept.item, kept.n);
    JinjaWriter text = {0};
    for (size_t k = 0; k < kept.n; k++)
        j_text_add(r, &text, *kept.item[k].str);
    return j_text_value(r, &text);
}

JinjaValue j_follow(JinjaRun *r, JinjaValue v, JinjaValue path)
{
    if (path.type != V_STR)
        return v_item(r, v, path);
    Str rest = *path.str;
    while (!r->rc) {
        const char *dot = memchr(rest.n ? rest.text : "", '.', rest.n);
        size_t n = dot ? (size_t)(dot - rest.text) : rest.n;
        int64_t number = 0;
        size_t i = 0;
        while (i < n && i < 9 && rest.text[i] >= '0' && rest.text[i] <= '9')
            number = number * 10 + (rest.text[i++] - '0');
        v = v_item(r, v, n && i == n ? v_int(number) : v_str(r, str_part(rest, 0, n)));
        if (!dot)
            break;
        rest = str_part(rest, n + 1, rest.n);
    }
    return v;
}

/* ---- order ---- */

/* Merges two sorted runs of `from` into `to`. */
static void merge(JinjaRun *r, const JinjaPair *from, JinjaPair *to, size_t a, size_t b, size_t end)
{
    size_t middle = b;
    for (size_t i = a; i < end && j_step(r, 1); i++) {
        bool left = a < middle && (b >= end || v_order(r, from[b].key, from[a].key) >= 0);
        to[i] = left ? from[a++] : from[b++];
    }
}

void j_sort_values(JinjaRun *r, JinjaPair *pair, size_t n)
{
    JinjaPair *other = arena_array(&r->arena, n, sizeof *other), *from = pair, *to = other;
    for (size_t width = 1; width < n && !r->rc; width *= 2) {
        for (size_t a = 0; a < n; a += 2 * width) {
            size_t b = a + width < n ? a + width : n, end = b + width < n ? b + width : n;
            merge(r, from, to, a, b, end);
        }
        JinjaPair *swap = from;
        from = to;
        to = swap;
    }
    if (from != pair && n)
        memcpy(pair, from, n * sizeof *pair);
}
