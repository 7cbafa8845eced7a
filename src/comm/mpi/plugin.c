/*
 * The transport over MPI, compiled against mpi.h into
 * libcaravan-mpi.so and loaded where a launcher is at work.
 * A lock lets one thread into MPI at a time: that is all
 * that MPI_THREAD_SERIALIZED asks, and every MPI has it.
 *
 * Nobody waits for the lock without end. A process that is stopped while it writes to shared memory
 * makes those who read there spin inside MPI; the watchdog must not be caught behind them.
 */
#include "comm/transport.h"

#include <limits.h>
#include <mpi.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

_Static_assert(sizeof(MPI_Request) <= sizeof(void *), "a request fits a Transfer");

typedef struct Mpi {
    Transport transport; /* first, so that the one is the other */
    pthread_mutex_t lock;
    MPI_Comm comm; /* our own, so that no message of others meets ours */
} Mpi;

/* err_set is the library's; a plug-in has nothing of it but headers. */
__attribute__((format(printf, 2, 3))) static int fail(cvn_err *err, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    if (err) {
        *err = (cvn_err){.code = CVN_EIO, .file = __FILE__, .line = __LINE__};
        vsnprintf(err->message, sizeof err->message, format, list);
    }
    va_end(list);
    return CVN_EIO;
}

static int fail_mpi(cvn_err *err, const char *what, int rank, int code)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    MPI_Error_string(code, text, &length);
    return fail(err, "MPI could not %s rank %d: %s", what, rank, text);
}

/* A type of `bytes` bytes, for messages whose length
   is no int: whole blocks of 1 MiB, and the rest. */
static int long_type(size_t bytes, MPI_Datatype *type)
{
    enum { BLOCK = 1 << 20 };
    MPI_Datatype block;
    int blocks = (int)(bytes / BLOCK), rest = (int)(bytes % BLOCK);
    TRY(MPI_Type_contiguous(BLOCK, MPI_BYTE, &block));
    int length[2] = {blocks, rest};
    MPI_Aint place[2] = {0, (MPI_Aint)blocks * BLOCK};
    MPI_Datatype part[2] = {block, MPI_BYTE};
    int code = MPI_Type_create_struct(2, length, place, part, type);
    if (!code)
        code = MPI_Type_commit(type);
    MPI_Type_free(&block);
    return code;
}

/* For at most a tenth of a second. */
static bool enter(Mpi *mpi)
{
    for (int i = 0; i < 1000; i++) {
        if (pthread_mutex_trylock(&mpi->lock) == 0)
            return true;
        nanosleep(&(struct timespec){.tv_nsec = i < 20 ? 1000 : 100000}, NULL);
    }
    return false;
}

static void keep(Transfer *transfer, MPI_Request request)
{
    transfer->request = NULL;
    if (request != MPI_REQUEST_NULL)
        memcpy(&transfer->request, &request, sizeof request);
}

static int begin(Mpi *mpi, bool sends, int rank, int tag, void *data, size_t bytes,
                 Transfer *transfer, cvn_err *err)
{
    MPI_Datatype type = MPI_BYTE;
    MPI_Request request = MPI_REQUEST_NULL;
    int code = MPI_SUCCESS;
    bool is_long = bytes > INT_MAX;
    if (!enter(mpi)) {
        fail(err, "MPI does not respond");
        if (err)
            err->code = CVN_EINTERRUPTED;
        return CVN_EINTERRUPTED;
    }
    if (is_long)
        code = long_type(bytes, &type);
    int n = is_long ? 1 : (int)bytes;
    if (!code)
        code = sends ? MPI_Isend(data, n, type, rank, tag, mpi->comm, &request)
                     : MPI_Irecv(data, n, type, rank, tag, mpi->comm, &request);
    if (is_long && type != MPI_BYTE)
        MPI_Type_free(&type); /* transfers that use it go on */
    pthread_mutex_unlock(&mpi->lock);
    keep(transfer, request);
    return code ? fail_mpi(err, sends ? "send to" : "receive from", rank, code) : CVN_OK;
}

static int mpi_send(Transport *t, int to, int tag, const void *data, size_t bytes,
                    Transfer *transfer, cvn_err *err)
{
    return begin((Mpi *)t, true, to, tag, (void *)(uintptr_t)data, bytes, transfer, err);
}

static int mpi_receive(Transport *t, int from, int tag, void *data, size_t bytes,
                       Transfer *transfer, cvn_err *err)
{
    return begin((Mpi *)t, false, from, tag, data, bytes, transfer, err);
}

static int mpi_test(Transport *t, Transfer *transfer, int n, bool *done, cvn_err *err)
{
    Mpi *mpi = (Mpi *)t;
    *done = true;
    for (int i = 0; i < n; i++) {
        MPI_Request request;
        int ended = 0;
        if (!transfer[i].request)
            continue;
        memcpy(&request, &transfer[i].request, sizeof request);
        if (pthread_mutex_trylock(&mpi->lock)) { /* who holds it moves all transfers along */
            *done = false;
            break;
        }
        int code = MPI_Test(&request, &ended, MPI_STATUS_IGNORE);
        pthread_mutex_unlock(&mpi->lock);
        if (code)
            return fail_mpi(err, "continue, says", mpi->transport.rank, code);
        keep(&transfer[i], request);
        if (!ended) {
            *done = false;
            break;
        }
    }
    return CVN_OK;
}

static void mpi_close(Transport *t)
{
    Mpi *mpi = (Mpi *)t;
    MPI_Comm_free(&mpi->comm);
    MPI_Finalize();
    pthread_mutex_destroy(&mpi->lock);
    free(mpi);
}

static void mpi_abort(Transport *t, int status)
{
    /* Without the lock: whoever holds it may be hanging in there. */
    MPI_Abort(((Mpi *)t)->comm, status);
}

static Transport *mpi_open(cvn_err *err)
{
    int level = MPI_THREAD_SINGLE, there = 0;
    Mpi *mpi = calloc(1, sizeof *mpi);
    if (!mpi) {
        fail(err, "no memory for MPI");
        return NULL;
    }
    MPI_Initialized(&there);
    if (there || MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level)) {
        fail(err, there ? "MPI was already initialized" : "MPI cannot be initialized");
        free(mpi);
        return NULL;
    }
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (level < MPI_THREAD_SERIALIZED || MPI_Comm_dup(MPI_COMM_WORLD, &mpi->comm)) {
        fail(err, "this MPI does not support MPI_THREAD_SERIALIZED");
        free(mpi);
        return NULL;
    }
    MPI_Comm_set_errhandler(mpi->comm, MPI_ERRORS_RETURN);
    pthread_mutex_init(&mpi->lock, NULL);
    mpi->transport = (Transport){.send = mpi_send,
                                 .receive = mpi_receive,
                                 .test = mpi_test,
                                 .close = mpi_close,
                                 .abort = mpi_abort};
    MPI_Comm_rank(mpi->comm, &mpi->transport.rank);
    MPI_Comm_size(mpi->comm, &mpi->transport.n_ranks);
    gethostname(mpi->transport.host, sizeof mpi->transport.host - 1);
    return &mpi->transport;
}

static void mpi_describe(char *text, size_t size)
{
    char version[MPI_MAX_LIBRARY_VERSION_STRING] = "MPI";
    int length;
    MPI_Get_library_version(version, &length);
    version[strcspn(version, ",\n")] = '\0'; /* who built it for what follows */
    snprintf(text, size, "%s", version);
}

extern const TransportPlugin caravan_transport;
const TransportPlugin caravan_transport = {
    .abi = TRANSPORT_ABI,
    .open = mpi_open,
    .describe = mpi_describe,
};
