/*
 * The writer in the background. Its whole protocol: the training thread makes a copy of the state and
 * starts a thread with it; the thread writes, stores its error, and sets `finished` (release); the
 * training thread sees `finished` (acquire) or joins, and only then looks at the rest. Nothing else is
 * shared.
 */
#include "train/checkpoint/checkpoint.h"

#include "base/num.h"
#include "train/checkpoint/folder.h"
#include "train/checkpoint/shards.h"

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

/* A state that is the writer's own, while the run's goes on. */
typedef struct StateCopy {
    CheckpointState state;   /* owned: tensor, names, config; their data lies in `data` */
    CheckpointShards shards; /* of the state, where it has some; owned: slice */
    uint8_t *data;           /* owned mapping: the tensors, each at a multiple of CACHE_LINE */
    size_t bytes;            /* of the mapping */
} StateCopy;

struct CheckpointWriter {
    FilePath folder;  /* RUN/checkpoints */
    char *tokenizer;  /* owned: options.tokenizer */
    char *base;       /* owned: options.base */
    LoraOptions lora; /* options.lora points here, if it is given */
    CheckpointOptions options;
    int lock;      /* file descriptor that holds the lock, or -1 */
    int64_t saved; /* step of the newest checkpoint completed, or -1 */
    bool running;  /* a thread was started and not joined */
    pthread_t thread;
    /* The save in flight; the thread's alone while running and not finished. */
    StateCopy copy;
    cvn_err err;  /* of the save */
    bool written; /* the checkpoint is there, even if deleting old ones failed */
    atomic_bool finished;
};

enum { NICENESS = 10 };

int checkpoint_lock(const char *run, int *lock, cvn_err *err)
{
    const FilePath path = file_path(checkpoint_folder(run).text, "lock");
    int fd = open(path.text, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    *lock = -1;
    if (fd < 0)
        return err_set(err, CVN_EIO, "cannot create '%s': %s", path.text, strerror(errno));
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
        *lock = fd;
        return CVN_OK;
    }
    int why = errno;
    close(fd);
    return why == EWOULDBLOCK
               ? err_set(err, CVN_EIO,
                         "another process is training into '%s' and holds '%s'; wait until it "
                         "ends, or stop it",
                         run, path.text)
               : err_set(err, CVN_EIO, "cannot lock '%s': %s", path.text, strerror(why));
}

/* Makes it where need be, takes its lock, and clears it of what is not wanted. */
static int prepare_folder(CheckpointWriter *writer, const char *run, int64_t step, cvn_err *err)
{
    const CheckpointOptions *o = &writer->options;
    const char *folder = writer->folder.text;
    TRY(file_make_folder(run, err));
    TRY(file_make_folder(folder, err));
    if (!o->locked)
        TRY(checkpoint_lock(run, &writer->lock, err));
    TRY(checkpoint_set_aside(folder, step, err));
    /* What a run that was killed in saving, or between that and deleting, left. */
    TRY(checkpoint_prune(folder, step, o->keep_last, o->keep_every, err));
    return file_sync_folder(folder, err);
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
    int code = CVN_OK;
    if ((options->tokenizer && !writer->tokenizer) || (options->base && !writer->base))
        code = err_set(err, CVN_EMEM, "no memory to write checkpoints");
    else if (cluster_rank(options->cluster) == 0)
        code = prepare_folder(writer, run, step, err);
    if (cluster_together(options->cluster, CLUSTER_SAVES, code, err) == CVN_OK)
        return writer;
    checkpoint_writer_free(writer);
    return NULL;
}

static void free_copy(StateCopy *copy)
{
    if (copy->data)
        munmap(copy->data, copy->bytes);
    for (int i = 0; copy->state.tensor && i < copy->state.n; i++)
        free((void *)(uintptr_t)copy->state.tensor[i].name);
    free(copy->state.tensor);
    free((void *)(uintptr_t)copy->state.config);
    if (copy->state.shards)
        free(copy->shards.slice);
    *copy = (StateCopy){0};
}

static size_t piece_bytes(const CheckpointState *state, const CheckpointSlice *piece)
{
    return num_padded(
        cvn_dtype_bytes(state->tensor[piece->tensor].type.dtype, box_elements(&piece->at.box)),
        CACHE_LINE);
}

/* Copies names, config and data. */
static int copy_state(StateCopy *copy, const CheckpointState *state, size_t bytes, cvn_err *err)
{
    copy->state = *state;
    copy->state.config = state->config ? strdup(state->config) : NULL;
    copy->state.tensor = calloc((size_t)state->n + 1, sizeof *state->tensor);
    copy->bytes = bytes + CACHE_LINE;
    void *data =
        mmap(NULL, copy->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    copy->data = data == MAP_FAILED ? NULL : data;
    if (!copy->data || !copy->state.tensor || (state->config && !copy->state.config))
        return err_set(err, CVN_EMEM, "no memory to copy a state of %zu bytes for a checkpoint",
                       bytes);
    for (int i = 0; i < state->n; i++) {
        const CheckpointTensor *from = &state->tensor[i];
        copy->state.tensor[i] = (CheckpointTensor){.name = strdup(from->name), .type = from->type};
        if (!copy->state.tensor[i].name)
            return err_set(err, CVN_EMEM, "no memory for the names of a checkpoint's tensors");
    }
    if (state->shards) {
        copy->shards = *state->shards;
        copy->state.shards = &copy->shards;
        copy->shards.slice =
            calloc((size_t)state->shards->n_slices + 1, sizeof *copy->shards.slice);
        if (!copy->shards.slice)
            return err_set(err, CVN_EMEM, "no memory for the slices of a checkpoint");
    }
    uint8_t *at = copy->data; /* pieces lie one behind another, without their padding */
    for (int i = 0; i < checkpoint_pieces(state); i++) {
        const CheckpointSlice from = checkpoint_piece(state, i);
        const BoxArray packed = box_packed(&from.at.box);
        box_copy(&from.at, from.data, &packed, at, state->tensor[from.tensor].type.dtype);
        if (state->shards)
            copy->shards.slice[i] = (CheckpointSlice){from.tensor, from.file, packed, at};
        else
            copy->state.tensor[i].data = at;
        at += piece_bytes(state, &from);
    }
    return CVN_OK;
}

static void write_and_prune(CheckpointWriter *writer, const CheckpointState *state)
{
    const CheckpointOptions *options = &writer->options;
    writer->err = (cvn_err){0};
    const char *folder = writer->folder.text;
    writer->written = checkpoint_write(folder, state, options, &writer->err) == CVN_OK;
    if (!writer->written)
        return;
    if (cluster_rank(options->cluster) == 0 &&
        checkpoint_prune(folder, state->step, options->keep_last, options->keep_every,
                         &writer->err) == CVN_OK)
        file_sync_folder(folder, &writer->err);
    cluster_together(options->cluster, CLUSTER_SAVES, writer->err.code, &writer->err);
}

static void *run_thread(void *context)
{
    CheckpointWriter *writer = context;
    /* Of this thread only, on Linux: the threads that train spin at barriers and go first. */
    setpriority(PRIO_PROCESS, 0, NICENESS);
    write_and_prune(writer, &writer->copy.state);
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
    int64_t step = writer->copy.state.step;
    free_copy(&writer->copy);
    return take_result(writer, step, err);
}

uint64_t checkpoint_bytes(const CheckpointState *state)
{
    uint64_t bytes = 0;
    for (int i = 0; i < state->n; i++)
        bytes += cvn_type_bytes(&state->tensor[i].type);
    return bytes;
}

int checkpoint_poll(CheckpointWriter *writer, int64_t *saved, cvn_err *err)
{
    int code = CVN_OK;
    if (writer->running && !writer->options.cluster &&
        atomic_load_explicit(&writer->finished, memory_order_acquire))
        code = checkpoint_wait(writer, err);
    if (saved)
        *saved = writer->saved;
    return code;
}

int checkpoint_save(CheckpointWriter *writer, const CheckpointState *state, cvn_err *err)
{
    TRY(checkpoint_wait(writer, err));
    size_t bytes = 0;
    for (int i = 0; i < checkpoint_pieces(state); i++) {
        const CheckpointSlice piece = checkpoint_piece(state, i);
        bytes += piece_bytes(state, &piece);
    }
    bool copies = bytes <= writer->options.copy_limit;
    int code = copies ? copy_state(&writer->copy, state, bytes, err) : CVN_OK;
    code = cluster_together(writer->options.cluster, CLUSTER_SAVES, code, err);
    if (code) {
        free_copy(&writer->copy);
        return code;
    }
    if (!copies) {
        write_and_prune(writer, state);
        return take_result(writer, state->step, err);
    }
    atomic_store_explicit(&writer->finished, false, memory_order_relaxed);
    if (pthread_create(&writer->thread, NULL, run_thread, writer) != 0) {
        write_and_prune(writer, &writer->copy.state);
        free_copy(&writer->copy);
        return take_result(writer, state->step, err);
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
    free(writer->tokenizer);
    free(writer->base);
    free(writer);
}
