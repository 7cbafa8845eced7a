/* The matmul primitive, by the C interface of oneDNN 2. */
#include "peers/peers.h"

#include <oneapi/dnnl/dnnl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A primitive ready to run, all NULL at first. */
typedef struct Product {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_primitive_desc_t plan;
    dnnl_primitive_t primitive;
    dnnl_memory_t a, b, c; /* own their numbers */
} Product;

static void run(void *context)
{
    const Product *p = context;
    const dnnl_exec_arg_t args[] = {
        {DNNL_ARG_SRC, p->a}, {DNNL_ARG_WEIGHTS, p->b}, {DNNL_ARG_DST, p->c}};
    dnnl_primitive_execute(p->primitive, p->stream, 3, args);
    dnnl_stream_wait(p->stream);
}

static int make(Product *p, dnnl_data_type_t type, int64_t m, int64_t k, int64_t n)
{
    dnnl_dims_t a_dims = {m, k}, b_dims = {k, n}, c_dims = {m, n};
    dnnl_memory_desc_t a, b, c;
    dnnl_matmul_desc_t desc;
    return dnnl_engine_create(&p->engine, dnnl_cpu, 0) ||
           dnnl_stream_create(&p->stream, p->engine, dnnl_stream_default_flags) ||
           dnnl_memory_desc_init_by_tag(&a, 2, a_dims, type, dnnl_ab) ||
           dnnl_memory_desc_init_by_tag(&b, 2, b_dims, type, dnnl_format_tag_any) ||
           dnnl_memory_desc_init_by_tag(&c, 2, c_dims, dnnl_f32, dnnl_ab) ||
           dnnl_matmul_desc_init(&desc, &a, &b, NULL, &c) ||
           dnnl_primitive_desc_create(&p->plan, &desc, NULL, p->engine, NULL) ||
           dnnl_primitive_create(&p->primitive, p->plan) ||
           dnnl_memory_create(&p->a, &a, p->engine, DNNL_MEMORY_ALLOCATE) ||
           dnnl_memory_create(&p->b,
                              dnnl_primitive_desc_query_md(p->plan, dnnl_query_weights_md, 0),
                              p->engine, DNNL_MEMORY_ALLOCATE) ||
           dnnl_memory_create(&p->c, &c, p->engine, DNNL_MEMORY_ALLOCATE);
}

/* Memory that was never written is one page of zeros, which would be read from the cache. */
static int write_numbers(dnnl_memory_t memory)
{
    enum { NUMBER = 0x3d }; /* bytes of it are 0.046 in f32 and bf16 */
    const dnnl_memory_desc_t *desc;
    void *data;
    if (dnnl_memory_get_memory_desc(memory, &desc) || dnnl_memory_get_data_handle(memory, &data))
        return -1;
    memset(data, NUMBER, dnnl_memory_desc_get_size(desc));
    return 0;
}

double peer_onednn(int threads, cvn_dtype dtype, int64_t m, int64_t k, int64_t n)
{
    if (dtype != CVN_F32 && dtype != CVN_BF16)
        return -1;
    char text[16];
    snprintf(text, sizeof text, "%d", threads);
    setenv("OMP_NUM_THREADS", text, 1); /* read when its threads start, at the first product */
    Product p = {0};
    int failed = make(&p, dtype == CVN_F32 ? dnnl_f32 : dnnl_bf16, m, k, n) || write_numbers(p.a) ||
                 write_numbers(p.b) || write_numbers(p.c);
    double seconds = failed ? -1 : peer_seconds(run, &p);
    dnnl_memory_destroy(p.a);
    dnnl_memory_destroy(p.b);
    dnnl_memory_destroy(p.c);
    dnnl_primitive_destroy(p.primitive);
    dnnl_primitive_desc_destroy(p.plan);
    dnnl_stream_destroy(p.stream);
    dnnl_engine_destroy(p.engine);
    return seconds;
}
