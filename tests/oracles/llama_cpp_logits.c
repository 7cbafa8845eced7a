/*
 * The logits of llama.cpp for tokens, of a model in a GGUF file: a program for llama_cpp_logits.py.
 *
 *     llama_cpp_logits MODEL.gguf TOKEN …     prints [tokens, vocab] in f32, as bytes
 *
 * All is in f32 on the CPU: caches too, and attention is not in one piece, which would round to f16.
 */
#include <llama.h>

#include <stdio.h>
#include <stdlib.h>

static void quiet(enum ggml_log_level level, const char *text, void *of)
{
    (void)of;
    if (level == GGML_LOG_LEVEL_ERROR)
        fputs(text, stderr);
}

int main(int argc, char **argv)
{
    enum { MOST = 512 };
    llama_token token[MOST];
    const int n = argc - 2;
    if (n < 1 || n > MOST)
        return 2;
    for (int i = 0; i < n; i++)
        token[i] = (llama_token)strtol(argv[i + 2], NULL, 10);
    llama_log_set(quiet, NULL);
    llama_backend_init();
    struct llama_model *model = llama_model_load_from_file(argv[1], llama_model_default_params());
    if (!model)
        return 1;
    struct llama_context_params params = llama_context_default_params();
    params.n_ctx = MOST;
    params.n_batch = params.n_ubatch = MOST;
    params.n_threads = params.n_threads_batch = 1;
    params.type_k = params.type_v = GGML_TYPE_F32;
    params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
    params.swa_full = true;
    struct llama_context *context = llama_init_from_model(model, params);
    if (!context)
        return 1;
    struct llama_batch batch = llama_batch_init(n, 0, 1);
    for (int i = 0; i < n; i++) {
        batch.token[i] = token[i];
        batch.pos[i] = i;
        batch.n_seq_id[i] = 1;
        batch.seq_id[i][0] = 0;
        batch.logits[i] = 1;
    }
    batch.n_tokens = n;
    if (llama_decode(context, batch))
        return 1;
    const int vocab = llama_vocab_n_tokens(llama_model_get_vocab(model));
    for (int i = 0; i < n; i++)
        fwrite(llama_get_logits_ith(context, i), sizeof(float), (size_t)vocab, stdout);
    llama_batch_free(batch);
    llama_free(context);
    llama_model_free(model);
    return 0;
}
