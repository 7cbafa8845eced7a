/* Folders of adapters for tests, as PEFT writes them: random A and B, both large enough to matter. */
#ifndef CVN_TESTS_ADAPTER_MAKE_H
#define CVN_TESTS_ADAPTER_MAKE_H

#include "base/file.h"
#include "io/safetensors.h"
#include "model/lora.h"
#include "splitmix.h"
#include "unit.h"

#include <stdlib.h>

/* Of a model of this config, the floats as they are; "r=4,alpha=8,targets=q,v". NaN: the last element is one. */
static inline void make_adapter(const char *folder, const Model *config, const char *text,
                                const char *model, uint64_t seed, bool nan)
{
    cvn_err err = {0};
    Arena arena;
    ParamList base;
    LoraOptions options;
    LoraParams lora;
    StWriter writer;
    must(arena_init(&arena, &err), &err);
    Model *plain = model_copy(config, &arena);
    model_set_blocks(plain, NULL);
    model_set_quant(plain, (QuantScheme){0});
    must(lora_parse(&options, text, &err), &err);
    params_list(&base, plain, &arena);
    lora_params(&lora, &base, &options, &arena);
    must(file_make_folder(folder, &err), &err);
    must(lora_config_write(&options, model, folder, &err), &err);
    must(st_writer_open(&writer, file_path(folder, "adapter_model.safetensors").text, &err), &err);
    for (int i = 0; i < lora.list.n; i++) {
        const Param *p = &lora.list.param[i];
        must(st_writer_declare(&writer, p->file_name[NAMING_HF], CVN_F32, 2, p->file_dims, &err),
             &err);
    }
    must(st_writer_begin(&writer, &err), &err);
    for (int i = 0; i < lora.list.n; i++) {
        int64_t n = lora.list.param[i].n;
        float *data = malloc((size_t)n * sizeof *data);
        for (int64_t k = 0; k < n; k++)
            data[k] = (float)((double)(splitmix(&seed) % 2001) / 1000 - 1) * 0.2f;
        if (nan && i == lora.list.n - 1)
            data[n - 1] = __builtin_nanf("");
        must(st_writer_data(&writer, (size_t)i, data, (size_t)n * sizeof *data, &err), &err);
        free(data);
    }
    must(st_writer_commit(&writer, &err), &err);
    st_writer_free(&writer);
    arena_free(&arena);
}

#endif
