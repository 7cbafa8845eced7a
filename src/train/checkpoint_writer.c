/*
 * The writer in the background. Its whole protocol: the training thread makes a copy of the state and
 * starts a thread with it; the thread writes, stores its error, and sets `finished` (release); the
 * training thread sees `finished` (acquire) or joins, and only then looks at the rest. Nothing else is
 * shared.
 */
#include "train/checkpoint.h"
#include "train/checkpoint_folder.h"
#include "train/checkpoint_write.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

struct CheckpointWriter {
    char *folder;       /* owned: RUN/checkpoints */
    char *tokenizer;    /* owned: options.tokenizer */
    char *base;         /* owned: options.base */
    LoraOptions lora;   /* options.lora points here, if it is given */
    LlamaConfig config; /* options.config points here, if it is given */
    CheckpointOptions options;
    int lock;      /* file descriptor that holds the lock, or -1 */
    int64_t saved; /* step of the newest checkpoint completed, or -1 */
    bool running;  /* a thread was started and not joined */
    pthread_t thread;
    /* The save in flight; the thread's alone while running and not finished. */
    CheckpointState state; /* owned: tensor, names, config; their data lies in copy */
    uint8_t *copy;         /* owned mapping: the tensors, each at a multiple of ALIGN */
    size_t copy_bytes;
    cvn_err err;  /* of the save */
    bool written; /* the checkpoint is there, even if deleting old ones failed */
    atomic_bool finished;
};

enum { ALIGN = 64, NICENESS = 10 };

static size_t aligned(size_t bytes)
{
    return (bytes + ALIGN - 1) & ~(size_t)(ALIGN - 1);
}

static int take_lock(CheckpointWriter *writer, cvn_err *err)
{
    char *path = file_join(writer->folder, "lock");
    int code = CVN_OK;
    writer->lock = path ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666) : -1;
    if (!path)
        code = err_set(err, CVN_EMEM, "no memory for a name in '%s'", writer->folder);
    else if (writer->lock < 0)
        code = err_set(err, CVN_EIO, "cannot create '%s': %s", path, strerror(errno));
    else if (flock(writer->lock, LOCK_EX | LOCK_NB) != 0)
        code = errno == EWOULDBLOCK
                   ? err_set(err, CVN_EIO,
                             "'%s' is held by another process that trains into this folder; stop "
                             "it or train into another",
                             path)
                   : err_set(err, CVN_EIO, "cannot lock '%s': %s", path, strerror(errno));
    free(path);
    return code;
}

CheckpointWriter *checkpoint_writer_new(const char *run, int64_t step,
                                        const CheckpointOptions *options, cvn_err *err)
{
    CheckpointWriter *writer = calloc(1, sizeof *writer);
    if (!writer) {
        err_set(err, CVN_EMEM, "no memory to write checkpoints");
        return NULL;
    }
    *writer = (CheckpointWriter){.options = *options, .lock = -1, .saved = -1};
    writer->folder = checkpoint_folder(run);
    if (options->tokenizer)
        writer->options.tokenizer = writer->tokenizer = strdup(options->tokenizer);
    if (options->base)
        writer->options.base = writer->base = strdup(options->base);
    if (options->lora) {
        writer->lora = *options->lora;
        writer->options.lora = &writer->lora;
    }
    if (options->config) {
        writer->config = *options->config;
        writer->options.config = &writer->config;
    }
    int code = writer->folder && (!options->tokenizer || writer->tokenizer) &&
                       (!options->base || writer->base)
                   ? CVN_OK
                   : err_set(err, CVN_EMEM, "no memory to write checkpoints");
    if (code == CVN_OK)
        code = file_make_folder(run, err);
    if (code == CVN_OK)
        code = file_make_folder(writer->folder, err);
    if (code == CVN_OK)
        code = take_lock(writer, err);
    if (code == CVN_OK)
        code = checkpoint_remove_partial(writer->folder, err);
    if (code == CVN_OK)
        code = checkpoint_set_aside(writer->folder, step, err);
    if (code == CVN_OK)
        code = checkpoint_sync(writer->folder, err);
    if (code != CVN_OK) {
        checkpoint_writer_free(writer);
        return NULL;
    }
    return writer;
}

static void free_state(CheckpointWriter *writer)
{
    if (writer->copy)
        munmap(writer->copy, writer->copy_bytes);
    for (int i = 0; writer->state.tensor && i < writer->state.n; i++)
        free((void *)(uintptr_t)writer->state.tensor[i].name);
    free(writer->state.tensor);
    free((void *)(uintptr_t)writer->state.config);
    writer->state = (CheckpointState){0};
    writer->copy = NULL;
}

/* Copies names, config and data. */
static int copy_state(CheckpointWriter *writer, const CheckpointState *state, size_t bytes,
                      cvn_err *err)
{
    writer->state = *state;
    writer->state.config = state->config ? strdup(state->config) : NULL;
    writer->state.tensor = calloc((size_t)state->n + 1, sizeof *state->tensor);
    writer->copy_bytes = bytes + ALIGN;
    void *copy =
        mmap(NULL, writer->copy_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    writer->copy = copy == MAP_FAILED ? NULL : copy;
    if (!writer->copy || !writer->state.tensor || (state->config && !writer->state.config))
        return err_set(err, CVN_EMEM, "no memory to copy a state of %zu bytes for a checkpoint",
                       bytes);
    size_t at = 0;
    for (int i = 0; i < state->n; i++) {
        CheckpointTensor *tensor = &writer->state.tensor[i];
        size_t n = cvn_type_bytes(&state->tensor[i].type);
        *tensor = (CheckpointTensor){strdup(state->tensor[i].name), state->tensor[i].type,
                                     writer->copy + at};
        if (!tensor->name)
            return err_set(err, CVN_EMEM, "no memory for the names of a checkpoint's tensors");
        if (n > 0)
            memcpy(tensor->data, state->tensor[i].data, n);
        at += aligned(n);
    }
    return CVN_OK;
}

static void write_and_prune(CheckpointWriter *writer, const CheckpointState *state)
{
    const CheckpointOptions *options = &writer->options;
    writer->err = (cvn_err){0};
    writer->written = checkpoint_write(writer->folder, state, options, &writer->err) == CVN_OK;
    if (writer->written && checkpoint_prune(writer->folder, state->step, options->keep_last,
                                            options->keep_every, &writer->err) == CVN_OK)
        checkpoint_sync(writer->folder, &writer->err);
}

static void *run_thread(void *context)
{
    CheckpointWriter *writer = context;
    /* Of this thread only, on Linux: the threads that train spin at barriers and go first. */
    setpriority(PRIO_PROCESS, 0, NICENESS);
    write_and_prune(writer, &writer->state);
    atomic_store_explicit(&writer->finished, true, memory_order_release);
    return NULL;
}

/* What a save that has ended leaves behind. */
static int take_result(CheckpointWriter *writer, int64_t step, cvn_err *err)
{
    if (writer->written)
        writer->saved = step;
    writer->written = false;
    if (writer->err.code == CVN_OK)
        return CVN_OK;
    if (err && err->code == CVN_OK)
        *err = writer->err;
    return writer->err.code;
}

int checkpoint_wait(CheckpointWriter *writer, cvn_err *err)
{
    if (!writer->running)
        return CVN_OK;
    pthread_join(writer->thread, NULL);
    writer->running = false;
    int64_t step = writer->state.step;
    free_state(writer);
    return take_result(writer, step, err);
}

int checkpoint_poll(CheckpointWriter *writer, int64_t *saved, cvn_err *err)
{
    int code = CVN_OK;
    if (writer->running && atomic_load_explicit(&writer->finished, memory_order_acquire))
        code = checkpoint_wait(writer, err);
    if (saved)
        *saved = writer->saved;
    return code;
}

int checkpoint_save(CheckpointWriter *writer, const CheckpointState *state, cvn_err *err)
{
    size_t bytes = 0;
    int code = checkpoint_wait(writer, err);
    if (code != CVN_OK)
        return code;
    for (int i = 0; i < state->n; i++)
        bytes += aligned(cvn_type_bytes(&state->tensor[i].type));
    if (bytes > writer->options.copy_limit) {
        write_and_prune(writer, state);
        return take_result(writer, state->step, err);
    }
    if ((code = copy_state(writer, state, bytes, err)) != CVN_OK) {
        free_state(writer);
        return code;
    }
    atomic_store_explicit(&writer->finished, false, memory_order_relaxed);
    int refused = pthread_create(&writer->thread, NULL, run_thread, writer);
    if (refused != 0) {
        free_state(writer);
        return err_set(err, CVN_EMEM, "cannot start a thread to write a checkpoint: %s",
                       strerror(refused));
    }
    writer->running = true;
    return CVN_OK;
}

void checkpoint_writer_free(CheckpointWriter *writer)
{
    if (!writer)
        return;
    checkpoint_wait(writer, NULL);
    if (writer->lock >= 0)
        close(writer->lock);
    free(writer->folder);
    free(writer->tokenizer);
    free(writer->base);
    free(writer);
}
