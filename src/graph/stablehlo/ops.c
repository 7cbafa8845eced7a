/* Operations whose StableHLO is more than a name and lists: regions, dimension numbers, groups. */
#include "graph/reduce.h"
#include "graph/stablehlo/stablehlo_impl.h"

#include <inttypes.h>

/* What sums of this dtype are made in. */
static cvn_dtype sum_dtype(cvn_dtype dtype)
{
    return dtype == CVN_BF16 || dtype == CVN_F16 ? CVN_F32 : dtype;
}

/* A call whose result is op's, or, when it is computed in another dtype, converted to op's. */
static void call_in(Hlo *h, const Op *op, HloCall call, cvn_dtype dtype)
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

/* Stable, floats in total order; a payload is carried along and not compared. */
void hlo_sort(Hlo *h, const Op *op)
{
    cvn_dtype dtype = op->operand[0]->type.dtype;
    const char *order = dtype_is_float(dtype) ? "TOTALORDER"
                        : dtype == CVN_U32    ? "UNSIGNED"
                                              : "SIGNED";
    const cvn_type key = cvn_scalar(dtype);
    const char *t = hlo_tensor(h, &key), *payload = "";
    if (op->n_operands > 1) {
        const cvn_type scalar = cvn_scalar(op->operand[1]->type.dtype);
        const char *u = hlo_tensor(h, &scalar);
        payload = arena_printf(&h->arena, ", %%$c: %s, %%$d: %s", u, u);
    }
    const char *region =
        arena_printf(&h->arena,
                     "{\n    ^bb0(%%$a: %s, %%$b: %s%s):\n"
                     "      %%$e = \"stablehlo.compare\"(%%$a, %%$b) {comparison_direction = "
                     "#stablehlo<comparison_direction %s>, compare_type = "
                     "#stablehlo<comparison_type %s>} : (%s, %s) -> tensor<i1>\n"
                     "      \"stablehlo.return\"(%%$e) : (tensor<i1>) -> ()\n    }",
                     t, t, payload, op->attr.flag ? "GT" : "LT", order, t, t);
    hlo_op(h, op, "sort", region,
           arena_printf(&h->arena, "%s, is_stable = true", hlo_attrs(h, op)));
}

/* Operand 0 in the dtype that sums are made in, and a scalar; as operands of a call. */
static void reduction_operands(Hlo *h, const Op *op, cvn_reduce kind, HloCall *call)
{
    cvn_type type = op->operand[0]->type;
    cvn_dtype dtype = sum_dtype(type.dtype);
    const cvn_type scalar = cvn_scalar(dtype);
    const char *x = hlo_convert(h, hlo_ref(h, op->operand[0]), &type, dtype);
    const char *start = hlo_splat(h, &scalar, reduce_neutral(kind, dtype));
    type.dtype = dtype;
    call->operands = arena_printf(&h->arena, "%s, %s", x, start);
    call->operand_types =
        arena_printf(&h->arena, "%s, %s", hlo_tensor(h, &type), hlo_tensor(h, &scalar));
    call->region = hlo_reducer(h, kind, dtype);
}

void hlo_reduce(Hlo *h, const Op *op)
{
    HloCall call = {.name = "reduce"};
    reduction_operands(h, op, op->attr.reduce, &call);
    call.attrs = hlo_attrs(h, op);
    call_in(h, op, call, sum_dtype(op->operand[0]->type.dtype));
}

/* A window over all elements up to this one. */
void hlo_cumsum(Hlo *h, const Op *op)
{
    const cvn_type *x = &op->operand[0]->type;
    int64_t window[CVN_MAX_RANK], one[CVN_MAX_RANK], padding[2 * CVN_MAX_RANK] = {0};
    for (int d = 0; d < x->rank; d++)
        one[d] = window[d] = 1;
    int axis = (int)op->attr.axis;
    if (x->dim[axis] > 1) {
        window[axis] = x->dim[axis];
        padding[2 * axis] = x->dim[axis] - 1;
    }
    const char *ones = hlo_array(h, &(Ints){x->rank, one});
    HloCall call = {.name = "reduce_window"};
    reduction_operands(h, op, CVN_SUM, &call);
    call.attrs = arena_printf(&h->arena,
                              "window_dimensions = %s, window_strides = %s, base_dilations = %s, "
                              "window_dilations = %s, padding = %s",
                              hlo_array(h, &(Ints){x->rank, window}), ones, ones, ones,
                              hlo_rows(h, &(Ints){2 * x->rank, padding}, 2));
    call_in(h, op, call, sum_dtype(x->dtype));
}

void hlo_dot_general(Hlo *h, const Op *op)
{
    const OpAttr *a = &op->attr;
    cvn_dtype dtype = op->operand[0]->type.dtype;
    cvn_dtype sum = dtype_is_float(dtype) || dtype == CVN_U32 ? sum_dtype(dtype) : CVN_I32;
    const char *precision = dtype == CVN_F32 || dtype == CVN_F64 ? "HIGHEST" : "DEFAULT";
    HloCall call = {.name = "dot_general",
                    .operands = hlo_operands(h, op),
                    .operand_types = hlo_types(h, op->operand, op->n_operands)};
    call.attrs = arena_printf(
        &h->arena,
        "dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = %s, "
        "rhs_batching_dimensions = %s, lhs_contracting_dimensions = %s, "
        "rhs_contracting_dimensions = %s>, precision_config = [#stablehlo<precision %s>, "
        "#stablehlo<precision %s>]",
        hlo_list(h, &a->lhs_batch), hlo_list(h, &a->rhs_batch), hlo_list(h, &a->lhs_contract),
        hlo_list(h, &a->rhs_contract), precision, precision);
    call_in(h, op, call, sum);
}

/* ", name = [1, 2]", or nothing: readers of old versions do not know batching dimensions. */
static const char *optional_list(Hlo *h, const char *name, const Ints *ints)
{
    return ints->n ? arena_printf(&h->arena, ", %s = %s", name, hlo_list(h, ints)) : "";
}

void hlo_gather(Hlo *h, const Op *op)
{
    const OpAttr *a = &op->attr;
    const char *attrs = arena_printf(
        &h->arena,
        "dimension_numbers = #stablehlo.gather<offset_dims = %s, collapsed_slice_dims = %s%s%s, "
        "start_index_map = %s, index_vector_dim = %" PRId64 ">, %s, indices_are_sorted = false",
        hlo_list(h, &a->window), hlo_list(h, &a->collapsed),
        optional_list(h, "operand_batching_dims", &a->operand_batch),
        optional_list(h, "start_indices_batching_dims", &a->index_batch),
        hlo_list(h, &a->index_map), a->index_vector_dim, hlo_attrs(h, op));
    hlo_op(h, op, "gather", NULL, attrs);
}

void hlo_scatter(Hlo *h, const Op *op)
{
    const OpAttr *a = &op->attr;
    cvn_dtype dtype = op->result[0]->type.dtype;
    const char *attrs = arena_printf(
        &h->arena,
        "scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = %s, "
        "inserted_window_dims = %s%s%s, scatter_dims_to_operand_dims = %s, index_vector_dim = "
        "%" PRId64 ">, indices_are_sorted = false, unique_indices = false",
        hlo_list(h, &a->window), hlo_list(h, &a->collapsed),
        optional_list(h, "input_batching_dims", &a->operand_batch),
        optional_list(h, "scatter_indices_batching_dims", &a->index_batch),
        hlo_list(h, &a->index_map), a->index_vector_dim);
    const cvn_type scalar = cvn_scalar(dtype);
    const char *t = hlo_tensor(h, &scalar);
    const char *region = a->combine == COMBINE_ADD
                             ? hlo_reducer(h, CVN_SUM, dtype)
                             : arena_printf(&h->arena, /* keeps the update */
                                            "{\n    ^bb0(%%$a: %s, %%$b: %s):\n"
                                            "      \"stablehlo.return\"(%%$b) : (%s) -> ()\n    }",
                                            t, t, t);
    hlo_op(h, op, "scatter", region, attrs);
}

/* ---- collectives: groups are of devices, which are replicas ---- */

void hlo_collective(Hlo *h, const Op *op)
{
    const bool reduces = op->kind == OP_ALL_REDUCE || op->kind == OP_REDUCE_SCATTER;
    const char *plain = hlo_attrs(h, op);
    const char *groups = hlo_rows(h, &op->attr.groups, op->attr.group_size);
    const char *region = NULL;
    if (reduces)
        region = hlo_reducer(h, op->attr.reduce, op->operand[0]->type.dtype);
    hlo_op(h, op, op_info[op->kind].name, region,
           arena_printf(&h->arena, "%s%sreplica_groups = %s", plain ? plain : "", plain ? ", " : "",
                        groups));
}

void hlo_collective_permute(Hlo *h, const Op *op)
{
    const char *pairs = hlo_rows(h, &op->attr.groups, 2);
    hlo_op(h, op, "collective_permute", NULL,
           arena_printf(&h->arena, "source_target_pairs = %s", pairs));
}
