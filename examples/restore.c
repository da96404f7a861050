/* restore.c - a prompt that was prefilled once is not prefilled again, not even
 * by another process. Run it twice:
 *
 *     restore MODEL.gguf FOLDER "a long prompt ..."
 *
 * Uses nothing but llama.h, cairn/store.h and cairn/llama.h. */
#include <cairn/llama.h>
#include <cairn/store.h>
#include <llama.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int give_up(const char *what, const char *why)
{
    fprintf(stderr, "%s: %s\n", what, why);
    return 1;
}

int main(int argc, char **argv)
{
    enum { CHUNK = 256 };
    if (argc != 4)
        return give_up("usage", "restore MODEL.gguf FOLDER PROMPT");
    llama_backend_init();
    struct llama_model_params model_params = llama_model_default_params();
    struct llama_model       *model = llama_model_load_from_file(argv[1], model_params);
    if (!model)
        return give_up(argv[1], "not a model");
    struct llama_context_params params = llama_context_default_params();
    params.n_ctx = 4096;
    params.n_seq_max = 2; /* one for us, one for the cache to work in */
    params.kv_unified = true;
    struct llama_context *ctx = llama_init_from_model(model, params);
    if (!ctx)
        return give_up(argv[1], "no context");

    cairn_error         error;
    cairn_store        *store;
    cairn_llama        *cache;
    const char         *path = argv[1];
    cairn_store_options store_options = {.root = argv[2]};
    if (cairn_store_open(&store_options, &store, &error))
        return give_up("store", error.text);
    cairn_llama_options options = {.model_params = &model_params, .context_params = &params,
                                   .model_paths = &path, .n_model_paths = 1, .store = store};
    if (cairn_llama_open(model, ctx, &options, &cache, &error))
        return give_up("cache", error.text);

    int32_t      size = (int32_t)strlen(argv[3]);
    llama_token *tokens = malloc(sizeof *tokens * ((size_t)size + 8));
    int32_t      n = llama_tokenize(llama_model_get_vocab(model), argv[3], size, tokens, size + 8, true, false);
    if (n <= 0 || n > (int32_t)params.n_ctx)
        return give_up("prompt", "empty or too long");

    cairn_llama_restored restored;
    if (cairn_llama_restore(cache, 0, tokens, (uint32_t)n, 0, &restored))
        return give_up("restore", "wrong call");
    printf("%u of %d tokens restored in %.1f ms (%s)\n", restored.n_tokens, n, (double)restored.elapsed_ns / 1e6,
           cairn_miss_text(restored.miss));
    for (int32_t at = (int32_t)restored.n_tokens; at < n;) {
        int32_t end = at + CHUNK < n ? at + CHUNK : n;
        if (llama_decode(ctx, llama_batch_get_one(tokens + at, end - at)))
            return give_up("decode", "failed");
        cairn_llama_record(cache, 0, tokens, (uint32_t)(at = end));
    }
    cairn_llama_record_end(cache, 0, tokens, (uint32_t)n);
    cairn_llama_close(cache);
    cairn_store_close(store); /* publishes what is queued */
    free(tokens);
    llama_free(ctx);
    llama_model_free(model);
    return 0;
}
