/*
 * How a Llama lies on a mesh: a layout is data, mesh axes for the logical axes
 * of its parameters and inputs. Only parameters and token ids are marked;
 * propagation does the rest.
 *
 *     dp     batch -> data; parameters whole (and batch -> dcn) tp     heads,
 * ffn, vocab -> model: activations between blocks are whole, one all-reduce
 * after attention's output and one after down   (Shoeybi et al. 2019,
 * arXiv:1909.08053) fsdp   as dp, and the embed axis of every parameter ->
 * data: gathered before its use (Rajbhandari et al. 2019, arXiv:1910.02054) 2d
 * both axes of every parameter are split, as published for Llama 2 on (data,
 * model):
 *
 *                embed, lm_head  (vocab, embed)    model, data
 *                q, k, v         (heads, embed)    data, model
 *                o               (embed, heads)    model, data
 *                gate, up        (ffn, embed)      model, data
 *                down            (embed, ffn)      data, model
 *                token ids       (batch, seq)      data, -
 *
 * Products are written with a plus: "fsdp+tp" (whose activations between blocks are split by model,
 * by the exchange of propagate.h). An axis that the mesh has not is left out, so a layout works on
 * every mesh. Norms are whole. Where a dimension has fewer elements than an axis has devices, it
 * takes as much of the axis as divides it, and is repeated over the rest: 8 KV heads on 16 devices
 * are split by model.1.8, 3 on 4 not at all.
 */
#ifndef CVN_SHARD_LAYOUTS_H
#define CVN_SHARD_LAYOUTS_H

#include "graph/graph.h"
#include "model/config.h"
#include "shard/mesh.h"

/* Name of the i-th layout, or NULL behind the last. */
const char *layout_name(size_t i);

/* Marks the parameters and token inputs of a graph that the model makes, by
   their names. Inputs have priority 0 and weights 1, so that the batch comes
   first. CVN_EINVAL when there is no such layout. */
int llama_mark(cvn_graph *g, const LlamaConfig *config, const Mesh *mesh, const char *layout,
               cvn_err *err);

#endif
