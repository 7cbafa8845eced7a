/*
 * How a Llama lies on a mesh: a layout is data, mesh axes for the
 * logical axes of its parameters and inputs. Only those are marked, and
 * in one layout what the embedding gives; propagation does the rest.
 *
 *     dp           batch -> data (and dcn); parameters whole
 *     tp           heads, ffn, vocab -> model: activations between blocks are whole, one all-reduce
 *                  after attention's output and one after down (Shoeybi et al. 2019,
 *                  arXiv:1909.08053)
 *     tp-scatter   as tp, but activations between blocks are split by model along seq, or embed
 *                  where seq is not divided: each all-reduce becomes a reduce-scatter before them
 *                  and an all-gather after (Korthikanti et al. 2022, arXiv:2205.05198)
 *     fsdp         as dp, and the embed axis of every parameter -> data: gathered before its use
 *                  (Rajbhandari et al. 2019, arXiv:1910.02054)
 *     2d           both axes of every parameter are split, as published for Llama 2 on (data,
 *                  model):
 *
 *                      embed, lm_head  (vocab, embed)    model, data
 *                      q, k, v         (heads, embed)    data, model
 *                      o               (embed, heads)    model, data
 *                      gate, up        (ffn, embed)      model, data
 *                      down            (embed, ffn)      data, model
 *                      token ids       (batch, seq)      data, -
 *
 *     cp           positions of a text -> context: queries and all that is done by position is split, weights are
 *                  whole, and attention gathers keys and values (Llama 3, arXiv:2407.21783, section 3.3.2)
 *     pp           layers -> stage: each of its devices has some of the layers, and activations go from one to the next
 *                  (train/stages.h)
 *
 * Products are written with a plus: "fsdp+tp" (whose activations between blocks are split by model,
 * by the exchange of propagate.h). An axis that the mesh has not is left out, so a layout works on
 * every mesh. Norms are whole. Where a dimension has fewer elements than an axis has devices, it
 * takes as much of the axis as divides it, and is repeated over the rest: 8 KV heads on 16 devices
 * are split by model.1.8, 3 on 4 not at all.
 *
 * Rules of one's own come from a file, any name that ends in .json: mesh axes, one or a list from
 * major to minor, for the logical axes of each group. All of them must be axes of the mesh.
 *
 *     {"tokens":      {"batch": ["dcn", "data"]},
 *      "tables":      {"vocab": "model", "embed": "data"},
 *      "attention":   {"heads": "model", "kv_heads": "model", "embed": "data"},
 *      "mlp":         {"ffn": "model", "embed": "data"},
 *      "activations": {"seq": "model"},
 *      "layers":      {"layer": "stage"}}
 */
#ifndef CVN_MODEL_LAYOUTS_H
#define CVN_MODEL_LAYOUTS_H

#include "graph/graph.h"
#include "model/model.h"
#include "shard/mesh.h"

/* Name of the i-th layout, or NULL behind the last. */
const char *layout_name(size_t i);

/* The layout that suits a mesh when none is said: tp where `model` alone has several devices; where others alone have, fsdp for
   training and dp for serving; 2d for both, and for meshes that cannot be read. With several devices along `context` cp is added
   to it, and pp with several along `stage`. */
const char *layout_for(const char *mesh, bool training);

/* Refuses what model_mark would refuse: no such layout, or a file of rules that do not fit the mesh. And a mesh with an axis
   of more than one device that the layout does not know. */
int layout_check(const char *layout, const Mesh *mesh, cvn_err *err);

/* Into how many stages a layout divides the layers on a mesh, 1 where it does not, and the mesh that each of them has, which is what is left
   of it: on that graphs of its layers are marked. Wherever the axis of stages is written, it counts as the first: the devices of a
   stage are neighbours. */
typedef struct LayoutStages {
    int n;
    const char *axis; /* the arena's, NULL: none; */
    const char *mesh; /* and that */
    int devices;      /* of each */
} LayoutStages;

int layout_stages(const char *layout, const char *mesh, Arena *arena, LayoutStages *out,
                  cvn_err *err);

/* Marks the parameters and token inputs of a graph that the model makes, by their names. Inputs
   have priority 0 and weights 1, so that the batch comes first; activations 2. CVN_EINVAL when
   there is no such layout, CVN_EFORMAT for a file of rules that says something else. */
int model_mark(cvn_graph *g, const Model *config, const Mesh *mesh, const char *layout,
               cvn_err *err);

/* The same, for whoever makes programs (run/program.h): context is a ModelLayout. */
typedef struct ModelLayout {
    const Model *model;
    const char *layout;
} ModelLayout;

int layout_mark(void *context, cvn_graph *g, const Mesh *mesh, cvn_err *err);

#endif
