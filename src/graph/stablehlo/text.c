/* The pieces that lines of StableHLO are made of: names, types, attributes, constants. */
#include "graph/stablehlo/stablehlo_impl.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void hlo_call(Hlo *h, const HloCall *call)
{
    strbuf_printf(h->out, "    %s = \"stablehlo.%s\"(%s)", call->result, call->name,
                  call->operands ? call->operands : "");
    if (call->region)
        strbuf_printf(h->out, " (%s)", call->region);
    if (call->attrs)
        strbuf_printf(h->out, " {%s}", call->attrs);
    strbuf_printf(h->out, " : (%s) -> ", call->operand_types ? call->operand_types : "");
    strbuf_printf(h->out, call->n_results > 1 ? "(%s)\n" : "%s\n", call->result_types);
}

const char *hlo_temp(Hlo *h)
{
    return arena_printf(&h->arena, "%%$%" PRId64, h->n_temps++);
}

const char *hlo_ref(Hlo *h, const cvn_value *v)
{
    const char *name = h->name[v->def->result[0]->id];
    return v->def->n_results > 1 ? arena_printf(&h->arena, "%%%s#%d", name, v->result)
                                 : arena_printf(&h->arena, "%%%s", name);
}

const char *hlo_results(Hlo *h, const Op *op)
{
    const char *name = h->name[op->result[0]->id];
    return op->n_results > 1 ? arena_printf(&h->arena, "%%%s:%d", name, op->n_results)
                             : arena_printf(&h->arena, "%%%s", name);
}

/* The text that was gathered in a buffer, moved into the arena. */
static const char *finish(Hlo *h, StrBuf *buf)
{
    const char *text = arena_stringn(&h->arena, buf->text, buf->length);
    h->out->failed |= buf->failed;
    strbuf_free(buf);
    return text;
}

const char *hlo_operands(Hlo *h, const Op *op)
{
    StrBuf buf = {0};
    for (int i = 0; i < op->n_operands; i++)
        strbuf_printf(&buf, "%s%s", i ? ", " : "", hlo_ref(h, op->operand[i]));
    return finish(h, &buf);
}

const char *hlo_types(Hlo *h, cvn_value *const *v, int n)
{
    StrBuf buf = {0};
    for (int i = 0; i < n; i++)
        strbuf_printf(&buf, "%s%s", i ? ", " : "", hlo_tensor(h, &v[i]->type));
    return finish(h, &buf);
}

void hlo_op(Hlo *h, const Op *op, const char *name, const char *region, const char *attrs)
{
    hlo_call(h, &(HloCall){.result = hlo_results(h, op),
                           .name = name,
                           .operands = hlo_operands(h, op),
                           .operand_types = hlo_types(h, op->operand, op->n_operands),
                           .region = region,
                           .attrs = attrs,
                           .result_types = hlo_types(h, op->result, op->n_results),
                           .n_results = op->n_results});
}

const char *hlo_attrs(Hlo *h, const Op *op)
{
    StrBuf buf = {0};
    for (const AttrInfo *row = op_info[op->kind].attrs; row->name; row++) {
        const void *field = attr_field(&op->attr, row);
        if (!row->hlo)
            continue;
        strbuf_printf(&buf, "%s%s = ", buf.length ? ", " : "", row->hlo);
        if (row->type == ATTR_INTS)
            strbuf_puts(&buf, hlo_array(h, field));
        else
            strbuf_printf(&buf, "%" PRId64 " : i64", *(const int64_t *)field);
    }
    return buf.length ? finish(h, &buf) : NULL;
}

const char *hlo_tensor(Hlo *h, const cvn_type *type)
{
    StrBuf buf = {0};
    strbuf_puts(&buf, "tensor<");
    for (int i = 0; i < type->rank; i++)
        strbuf_printf(&buf, "%" PRId64 "x", type->dim[i]);
    strbuf_printf(&buf, "%s>", type->dtype == CVN_U32 ? "ui32" : cvn_dtype_name(type->dtype));
    return finish(h, &buf);
}

const char *hlo_list(Hlo *h, const Ints *ints)
{
    StrBuf buf = {0};
    strbuf_putc(&buf, '[');
    for (int i = 0; i < ints->n; i++)
        strbuf_printf(&buf, "%s%" PRId64, i ? ", " : "", ints->v[i]);
    strbuf_putc(&buf, ']');
    return finish(h, &buf);
}

const char *hlo_array(Hlo *h, const Ints *ints)
{
    StrBuf buf = {0};
    strbuf_puts(&buf, "array<i64");
    for (int i = 0; i < ints->n; i++)
        strbuf_printf(&buf, "%s%" PRId64, i ? ", " : ": ", ints->v[i]);
    strbuf_putc(&buf, '>');
    return finish(h, &buf);
}

/* One element. Floats are the shortest decimal that reads back; what is not finite, its bits. */
static void put_element(StrBuf *buf, cvn_dtype dtype, const void *data, int64_t i)
{
    double value = element_get(dtype, data, i), back[1] = {0};
    int bytes = cvn_dtype_bits(dtype) / 8;
    char text[40];
    if (dtype == CVN_BOOL) {
        strbuf_puts(buf, value != 0 ? "true" : "false");
    } else if (!dtype_is_float(dtype)) {
        strbuf_printf(buf, "%.0f", value);
    } else if (!isfinite(value)) {
        uint64_t bits = 0;
        memcpy(&bits, (const char *)data + i * bytes, (size_t)bytes);
        strbuf_printf(buf, "0x%0*" PRIX64, 2 * bytes, bits);
    } else {
        for (int digits = 1; digits <= 16; digits++) {
            snprintf(text, sizeof text, "%.*e", digits, value);
            element_set(dtype, back, 0, strtod(text, NULL));
            if (element_get(dtype, back, 0) == value)
                break;
        }
        strbuf_puts(buf, text);
    }
}

/* Brackets between elements: after element i, all dimensions that end there are closed. */
static void put_brackets(StrBuf *buf, const cvn_type *type, int64_t i, char bracket)
{
    int64_t block = 1;
    for (int d = type->rank - 1; d >= 0; d--) {
        block *= type->dim[d];
        if (i % block == 0)
            strbuf_putc(buf, bracket);
    }
}

const char *hlo_dense(Hlo *h, const cvn_type *type, const void *data, bool splat)
{
    StrBuf buf = {0};
    int64_t n = cvn_type_elements(type);
    strbuf_puts(&buf, "dense<");
    for (int64_t i = 0; i < (splat && n ? 1 : n); i++) {
        strbuf_puts(&buf, i ? ", " : "");
        if (!splat)
            put_brackets(&buf, type, i, '[');
        put_element(&buf, type->dtype, data, i);
        if (!splat)
            put_brackets(&buf, type, i + 1, ']');
    }
    strbuf_printf(&buf, "> : %s", hlo_tensor(h, type));
    return finish(h, &buf);
}

const char *hlo_rows(Hlo *h, const Ints *ints, int64_t columns)
{
    StrBuf buf = {0};
    strbuf_puts(&buf, ints->n ? "dense<[" : "dense<");
    for (int i = 0; i < ints->n; i++) {
        strbuf_puts(&buf, i == 0 ? "[" : i % columns ? ", " : "], [");
        strbuf_printf(&buf, "%" PRId64, ints->v[i]);
    }
    strbuf_printf(&buf, "%s> : tensor<%" PRId64 "x%" PRId64 "xi64>", ints->n ? "]]" : "",
                  ints->n / columns, columns);
    return finish(h, &buf);
}

const char *hlo_as(Hlo *h, const char *text, const cvn_type *type, cvn_dtype to)
{
    cvn_type result = *type;
    result.dtype = to;
    if (to == type->dtype)
        return text;
    const char *temp = hlo_temp(h);
    hlo_call(h, &(HloCall){.result = temp,
                           .name = "convert",
                           .operands = text,
                           .operand_types = hlo_tensor(h, type),
                           .result_types = hlo_tensor(h, &result)});
    return temp;
}

const char *hlo_splat(Hlo *h, const cvn_type *type, double value)
{
    double data[1] = {0};
    element_set(type->dtype, data, 0, value);
    const char *temp = hlo_temp(h);
    const char *dense = hlo_dense(h, type, data, true);
    hlo_call(h, &(HloCall){.result = temp,
                           .name = "constant",
                           .attrs = arena_printf(&h->arena, "value = %s", dense),
                           .result_types = hlo_tensor(h, type)});
    return temp;
}

const char *hlo_reducer(Hlo *h, cvn_reduce kind, cvn_dtype dtype)
{
    static const char *const name[REDUCE_COUNT] = {"add",     "multiply", "maximum",
                                                   "minimum", "and",      "or"};
    const cvn_type scalar = cvn_scalar(dtype);
    const char *t = hlo_tensor(h, &scalar);
    return arena_printf(&h->arena,
                        "{\n    ^bb0(%%$a: %s, %%$b: %s):\n"
                        "      %%$c = \"stablehlo.%s\"(%%$a, %%$b) : (%s, %s) -> %s\n"
                        "      \"stablehlo.return\"(%%$c) : (%s) -> ()\n    }",
                        t, t, name[kind], t, t, t, t);
}

cvn_dtype hlo_sum_dtype(cvn_dtype dtype)
{
    return dtype == CVN_BF16 || dtype == CVN_F16 ? CVN_F32 : dtype;
}

void hlo_call_in(Hlo *h, const Op *op, HloCall call, cvn_dtype dtype)
{
    cvn_type type = op->result[0]->type;
    bool same = type.dtype == dtype;
    type.dtype = dtype;
    call.result = same ? hlo_results(h, op) : hlo_temp(h);
    call.result_types = hlo_tensor(h, &type);
    hlo_call(h, &call);
    if (!same)
        hlo_call(h, &(HloCall){.result = hlo_results(h, op),
                               .name = "convert",
                               .operands = call.result,
                               .operand_types = call.result_types,
                               .result_types = hlo_tensor(h, &op->result[0]->type)});
}

/* ---- collectives: groups are of devices, which are replicas ---- */
