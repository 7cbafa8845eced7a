/*
 * Trains a small network on several devices, by the public interface alone:
 *
 *     cc -o mlp mlp.c $(pkg-config --cflags --libs caravan) -lm
 *     ./mlp data=2,model=2        4 devices; without an argument one
 *
 * The graph is written on whole shapes. One mark says how one tensor lies; the compiler finds the rest: how inputs and
 * weights are cut, what each device computes, and what devices tell one another.
 */
#include <caravan/caravan.h>

#include <math.h>
#include <stdio.h>

enum { ROWS = 64, IN = 8, HIDDEN = 32, STEPS = 200 };

/* x [rows, in], y [rows], w1 [in, hidden], w2 [hidden] -> w1 and w2 after a step of descent, loss */
static cvn_graph *build(cvn_err *err)
{
    cvn_graph *g = cvn_graph_new("mlp", err);
    if (!g)
        return NULL;
    cvn_value *x = cvn_parameter(g, "x", CVN_TYPE(CVN_F32, ROWS, IN));
    cvn_value *y = cvn_parameter(g, "y", CVN_TYPE(CVN_F32, ROWS));
    cvn_value *w[2] = {cvn_parameter(g, "w1", CVN_TYPE(CVN_F32, IN, HIDDEN)),
                       cvn_parameter(g, "w2", CVN_TYPE(CVN_F32, HIDDEN))};
    cvn_value *h = cvn_tanh(g, cvn_einsum(g, "bi,ih->bh", x, w[0]));
    cvn_value *miss = cvn_subtract(g, cvn_einsum(g, "bh,h->b", h, w[1]), y), *dw[2];
    cvn_value *loss = cvn_reduce_dims(g, CVN_SUM, cvn_multiply(g, miss, miss), 1, (int[]){0});
    loss = cvn_multiply(g, loss, cvn_splat(g, *cvn_value_type(loss), 1.0 / ROWS));
    cvn_mark_sharding(g, h, &(cvn_spec){.rank = 2, .dim = {{1, {"data"}}, {1, {"model"}}}});
    if (cvn_gradient(g, loss, 2, w, dw, err)) {
        cvn_graph_free(g);
        return NULL;
    }
    for (int i = 0; i < 2; i++) {
        cvn_value *rate = cvn_splat(g, *cvn_value_type(w[i]), 0.05);
        cvn_output_into(g, cvn_subtract(g, w[i], cvn_multiply(g, rate, dw[i])), w[i]);
    }
    cvn_output(g, loss);
    return g;
}

/* Weights stay on the devices from step to step; x and y are given each time. */
static int train(cvn_mesh *mesh, cvn_program *step, cvn_array *w1, cvn_array *w2, cvn_err *err)
{
    static float x[ROWS][IN], y[ROWS], start1[IN][HIDDEN], start2[HIDDEN];
    float loss = 0;
    for (int r = 0; r < ROWS; r++)
        for (int i = 0; i < IN; i++)
            y[r] += x[r][i] = sinf((float)(3 * r + 7 * i + r * i));
    for (int h = 0; h < HIDDEN; h++) {
        start2[h] = 0.2F * cosf((float)(5 * h));
        for (int i = 0; i < IN; i++)
            start1[i][h] = 0.3F * cosf((float)(11 * h + 3 * i * i));
    }
    if (cvn_array_write(w1, start1, err) || cvn_array_write(w2, start2, err))
        return 1;
    printf("%d devices\n", cvn_mesh_devices(mesh));
    for (int i = 0; i <= STEPS; i++) {
        if (cvn_run(step, (void *[]){x, y, NULL, NULL}, (void *[]){NULL, NULL, &loss}, err))
            return 1;
        if (i % 20 == 0)
            printf("step %d loss %.7g\n", i, (double)loss);
    }
    return 0;
}

int main(int argc, char **argv)
{
    cvn_err err = {0};
    cvn_mesh *mesh = cvn_mesh_new(argc > 1 ? argv[1] : "", NULL, &err);
    cvn_graph *g = build(&err);
    cvn_array *w1 = cvn_array_new(mesh, &err), *w2 = cvn_array_new(mesh, &err);
    cvn_program *step = cvn_compile_arrays(mesh, g, (cvn_array *[]){NULL, NULL, w1, w2}, &err);
    int failed = !step || train(mesh, step, w1, w2, &err);
    if (failed)
        fprintf(stderr, "%s: %s\n", argv[0], err.message);
    cvn_program_free(step);
    cvn_array_free(w1);
    cvn_array_free(w2);
    cvn_graph_free(g);
    cvn_mesh_free(mesh);
    return failed;
}
