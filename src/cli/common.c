#include "cli/common.h"

#include "base/cores.h"
#include "base/file.h"
#include "cli/terminal.h"
#include "cpu/registry.h"
#include "grad/remat.h"
#include "io/tensor.h"
#include "model/layouts.h"
#include "model/presets.h"
#include "run/backend.h"
#include "shard/mesh.h"
#include "train/config.h"

#include <dirent.h>
#include <errno.h>
#include <string.h>

static int check_mesh_or_auto(const char *text, cvn_err *err)
{
    return strcmp(text, "auto") == 0 ? CVN_OK : check_mesh(text, err);
}

const char *choice_of_layout(size_t i)
{
    return i ? layout_name(i - 1) : "auto";
}

const Option shared_options[SHARED_OPTIONS] = {
#define SHARE(name, ...) [SHARED_##name] = {__VA_ARGS__},
#include "cli/shared.def"
#undef SHARE
};

const char *choice_of_preset(size_t i)
{
    return i < presets_count() ? preset_at(i).name : NULL;
}

int check_mesh(const char *text, cvn_err *err)
{
    Mesh mesh;
    SCOPED(arena_free) Arena arena = {0};
    TRY(arena_begin(&arena, err));
    int code = mesh_parse(&mesh, text, &arena, err);
    if (code)
        err_prefix(err, "--mesh");
    return code;
}

int check_device(const char *text, cvn_err *err)
{
    const Backend *found;
    if (backend_find(text, &found, err))
        err_prefix(err, "--device");
    return err->code;
}

bool is_shape(const char *folder)
{
    if (!file_has(folder, "config.json"))
        return false;
    DIR *stream = opendir(folder);
    bool weights = false;
    for (struct dirent *entry; stream && (entry = readdir(stream));)
        weights |= io_ends_with(entry->d_name, ".safetensors") ||
                   io_ends_with(entry->d_name, ".index.json");
    if (stream)
        closedir(stream);
    return stream && !weights;
}

const char *choice_of_remat(size_t i)
{
    return i < REMAT_POLICY_COUNT ? remat_policy_names[i] : NULL;
}

const char *const storage_choices[] = {"f32", "bf16", "f16", NULL};

/* Unless it was asked for. */
static void warn_of_slow_kernels(void)
{
    const char *wanted = getenv("CARAVAN_CPU");
    if (strcmp(cpu_kernels()->name, "portable") == 0 &&
        !(wanted && strcmp(wanted, "portable") == 0))
        fprintf(stderr,
                "caravan: warning: this processor lacks AVX2, FMA or F16C, so that everything "
                "runs several times slower than it could; caravan --version says more\n");
}

int64_t limit_threads(int64_t wanted)
{
    Cores cores;
    warn_of_slow_kernels();
    if (wanted <= 1)
        return wanted;
    cores_find(&cores);
    /* Two threads on a core may help; more than the processors, or than the quota, never do. */
    int most = cores.n < cores.n_cores ? cores.n : cores.n_processors;
    if (wanted <= most)
        return wanted;
    fprintf(
        stderr,
        "caravan: warning: %lld threads exceed the %d core%s that this process may use; using %d\n",
        (long long)wanted, most, most == 1 ? "" : "s", most);
    return most;
}

void warn_left_out(const Tokenizer *tokenizer, const char *source, const char *text, size_t n)
{
    size_t first = 0, left_out = tokenizer_left_out(tokenizer, text, n, &first);
    if (left_out == 1)
        fprintf(stderr,
                "caravan: warning: %s: byte %zu (0x%02x) has no token in the vocabulary and is "
                "dropped\n",
                source, first, (unsigned char)text[first]);
    else if (left_out)
        fprintf(stderr,
                "caravan: warning: %s: %zu bytes have no token in the vocabulary and are dropped, "
                "the first is byte %zu (0x%02x)\n",
                source, left_out, first, (unsigned char)text[first]);
}

cvn_dtype dtype_of(const Value *value)
{
    cvn_dtype dtype = CVN_DTYPE_COUNT;
    if (value->text)
        cvn_dtype_parse(value->text, &dtype);
    return dtype;
}

static int write_stdout(const char *text, size_t n, void *context)
{
    (void)context;
    return fwrite(text, 1, n, stdout) == n ? 0 : -1;
}

int print_json(json_t *value, cvn_err *err)
{
    int code = value ? json_dump_callback(value, write_stdout, NULL, JSON_REAL_PRECISION(9)) : -1;
    json_decref(value);
    return code == 0 && putchar('\n') != EOF
               ? CVN_OK
               : err_set(err, CVN_EIO, "cannot print the result as JSON");
}

int print_text(StrBuf *text)
{
    bool ok = !text->failed;
    if (ok && text->length)
        fwrite(text->text, 1, text->length, stdout); /* main tells what did not arrive */
    else if (!ok)
        fprintf(stderr, "caravan: no memory for the text\n");
    strbuf_free(text);
    return ok ? EXIT_OK : EXIT_REFUSED;
}

int read_input(const char *path, char **text, size_t *length, cvn_err *err)
{
    bool standard = strcmp(path, "-") == 0;
    if (!standard && file_is_folder(path))
        return err_set(err, CVN_EIO, "'%s' is a folder; give a file", path);
    FILE *file = standard ? stdin : fopen(path, "rb");
    if (!file)
        return err_set(err, CVN_EIO, "cannot open '%s': %s", path, strerror(errno));
    StrBuf all = {0};
    char piece[65536];
    size_t n;
    strbuf_add(&all, "", 0);
    do { /* a short read is the end: on a terminal another one would wait for a second Ctrl-D */
        n = fread(piece, 1, sizeof piece, file);
        strbuf_add(&all, piece, n);
    } while (n == sizeof piece);
    int code = CVN_OK;
    if (ferror(file))
        code = err_set(err, CVN_EIO, "cannot read %s: %s", standard ? "standard input" : path,
                       strerror(errno));
    else if (all.failed)
        code = err_set(err, CVN_EMEM, "no memory for the %zu bytes of '%s'", all.length, path);
    if (!standard)
        fclose(file);
    if (code) {
        strbuf_free(&all);
        return code;
    }
    *text = all.text;
    *length = all.length;
    return CVN_OK;
}

int each_line(const char *source, const char *text, size_t n, TakeLine *take, void *context,
              cvn_err *err)
{
    size_t number = 1;
    for (const char *at = text, *end = text + n; at < end; number++) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        size_t length = newline ? (size_t)(newline - at) : (size_t)(end - at);
        int code = strspn(at, " \t\r") < length ? take(context, at, length, number, err) : CVN_OK;
        if (code) {
            err_prefix(err, "%s:%zu", source, number);
            return code;
        }
        at += length + (newline != NULL);
    }
    return CVN_OK;
}

static void warn_of_damage(void *context, const char *sentence)
{
    (void)context;
    fprintf(stderr, "caravan: warning: %s; trying the previous checkpoint\n", sentence);
}

int find_checkpoint(Checkpoint *checkpoint, const char *run, const Value *step, cvn_err *err)
{
    if (!file_exists(run))
        return err_set(err, CVN_EIO, "there is no folder '%s'", run);
    return checkpoint_find(checkpoint, run, step->given ? step->integer : -1, warn_of_damage, NULL,
                           err);
}
