/*
 * caravan pull: fetches a model from a hub, by the program hf where it is installed, else by curl.
 *
 *     GET /api/models/ORG/NAME/revision/main?blobs=true     what files there are: names, sizes, digests
 *     GET /ORG/NAME/resolve/COMMIT/FILE                     each that is needed, to FILE.part
 *
 * A file has its name once it is whole and its digest is right, so a name that is there need not be fetched again. What an
 * interrupted run left goes on where it ended. Digests are those of the hub: SHA-256 of large files, and of small ones the SHA-1
 * that git gives a blob, which is that of "blob SIZE", a NUL and the content. Both are computed by the programs of coreutils.
 */
#include "base/bytes.h"
#include "base/json_file.h"
#include "cli/child.h"
#include "cli/common.h"
#include "cli/terminal.h"
#include "io/model_names.h"

#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { FILE_NAME, REVISION };

static const Option *const options[] = {
    OPTION(FILE_NAME, "file", .kind = ARG_TEXT, .value = "FILE",
           .help = "GGUF file to download, with its parts"),
    OPTION(REVISION, "revision", .kind = ARG_TEXT, .value = "REV", .fallback = "main",
           .help = "branch, tag or commit"),
    NULL,
};

/* Of a folder of safetensors: what is read of it, and its licence. */
static const char *const needed[] = {
    "config.json",
    "generation_config.json",
    "adapter_config.json",
    "tokenizer*",
    "tekken.json",
    "vocab.json",
    "merges.txt",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template*",
    "*.safetensors",
    "*.safetensors.index.json",
    "LICENSE*",
    "USE_POLICY*",
};
enum { NEEDED = sizeof needed / sizeof *needed, MOST_TRIES = 5 };

typedef struct Pull {
    const char *name, *revision, *file; /* file: NULL where none was named */
    const char *endpoint;               /* https://huggingface.co */
    FilePath folder;                    /* it goes to */
    json_t *listing;                    /* owned */
    const char *commit;                 /* the listing's */
    char token[512];                    /* or "" */
} Pull;

/* A file of the listing. */
typedef struct Remote {
    const char *name, *sha256, *blob; /* digests, or NULL */
    int64_t size;
} Remote;

/* ---- what is asked ---- */

static int check_asked(const Pull *p, cvn_err *err)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./";
    if (!model_names_of_hub(p->name))
        return err_set(err, CVN_EINVAL,
                       "%s is not the name of a model at a hub, such as "
                       "meta-llama/Llama-3.2-1B-Instruct",
                       p->name);
    if (!*p->revision || p->revision[strspn(p->revision, letters)] || p->revision[0] == '-' ||
        strstr(p->revision, ".."))
        return err_set(err, CVN_EINVAL, "--revision: %s is not a branch, tag or commit",
                       p->revision);
    if (strncmp(p->endpoint, "https://", 8) != 0 && strncmp(p->endpoint, "http://", 7) != 0)
        return err_set(err, CVN_EINVAL, "HF_ENDPOINT: %s does not begin with https:// or http://",
                       p->endpoint);
    return CVN_OK;
}

/* As hf looks for it: $HF_TOKEN, or the file that `hf auth login` writes. */
static void find_token(Pull *p)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
    const char *told = getenv("HF_TOKEN"), *file = getenv("HF_TOKEN_PATH");
    const char *home = getenv("HF_HOME"), *user = getenv("HOME");
    snprintf(p->token, sizeof p->token, "%s", told ? told : "");
    FilePath path = file_path(
        home && *home ? home : file_path(user ? user : "", ".cache/huggingface").text, "token");
    FILE *in = told && *told ? NULL : fopen(file && *file ? file : path.text, "re");
    if (in && !fgets(p->token, sizeof p->token, in))
        p->token[0] = '\0';
    if (in)
        fclose(in);
    p->token[strspn(p->token, letters)] = '\0'; /* nothing that could end the line it stands on */
}

/* ---- curl ---- */

static int write_config(void *context, int to, cvn_err *err)
{
    const Pull *p = context;
    SCOPED(strbuf_free) StrBuf text = {0};
    strbuf_puts(&text, "user-agent = \"caravan\"\n");
    if (p->token[0])
        strbuf_printf(&text, "header = \"Authorization: Bearer %s\"\n", p->token);
    if (text.failed || write(to, text.text, text.length) != (ssize_t)text.length)
        return err_set(err, CVN_EIO, "cannot pass the options to curl");
    return CVN_OK;
}

/* What went wrong with an address, by the exit status of curl and the status of HTTP. */
static int refuse(const Pull *p, const char *what, int status, int http, cvn_err *err)
{
    static const struct {
        int status;
        const char *says;
    } reasons[] = {
        {5, "cannot resolve the proxy"},
        {6, "cannot resolve the host, or no network"},
        {7, "cannot connect"},
        {18, "the connection ended early"},
        {28, "timed out"},
        {35, "the TLS connection failed"},
        {47, "too many redirects"},
        {52, "the response is empty"},
        {56, "the connection was reset"},
        {60, "its certificate is not trusted"},
    };
    if (http == 401 || http == 403)
        return err_set(err, CVN_EIO,
                       "%s/%s does not exist or requires authentication (HTTP %d): accept its "
                       "licence on that page, and give a token in HF_TOKEN or by hf auth login",
                       p->endpoint, p->name, http);
    if (http == 404)
        return err_set(err, CVN_EIO, "%s has no %s (HTTP 404)", p->endpoint, what);
    if (http == 429)
        return err_set(err, CVN_EIO, "%s: rate limit exceeded (HTTP 429); try again later",
                       p->endpoint);
    if (http >= 400)
        return err_set(err, CVN_EIO, "%s refuses %s: HTTP %d", p->endpoint, what, http);
    if (status == 23)
        return err_set(err, CVN_EIO,
                       "%s cannot be written to %s: is the disk full? The part that came is kept; "
                       "repeat the command to resume",
                       what, p->folder.text);
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++)
        if (reasons[i].status == status)
            return err_set(err, CVN_EIO, "%s: fetching %s: %s; repeat the command to resume",
                           p->endpoint, what, reasons[i].says);
    return err_set(err, CVN_EIO, "%s: fetching %s: curl failed with status %d", p->endpoint, what,
                   status);
}

/* An answer whose last line is the status of HTTP, which is taken off. */
static int take_http(StrBuf *text)
{
    char *line = text->length ? strrchr(text->text, '\n') : NULL;
    const char *number = line ? line + 1 : text->length ? text->text : "0";
    int http = (int)strtol(number, NULL, 10);
    if (line) {
        *line = '\0';
        text->length = (size_t)(line - text->text);
    }
    return http;
}

/* Fetches a path of the hub: to a file, behind what it holds already, or into `text`. */
static int fetch(const Pull *p, const char *path, const char *file, bool resume, StrBuf *text,
                 int *status, int *http, cvn_err *err)
{
    SCOPED(strbuf_free) StrBuf url = {0};
    const char *line[24] = {"curl",
                            "-K",
                            "-",
                            "-fL",
                            "--proto",
                            "=http,https",
                            "--connect-timeout",
                            "30",
                            "--speed-limit",
                            "1",
                            "--speed-time",
                            "60",
                            "-w",
                            "\n%{http_code}"};
    int n = 14;
    strbuf_printf(&url, "%s%s", p->endpoint, path);
    line[n++] = file && isatty(STDERR_FILENO) ? "-#" : "-s";
    if (resume)
        line[n++] = "-C", line[n++] = "-";
    if (file)
        line[n++] = "-o", line[n++] = file;
    line[n++] = "--url";
    line[n++] = url.text;
    if (url.failed)
        return err_set(err, CVN_EMEM, "no memory for an address");
    const Child child = {.feed = write_config, .context = (void *)(uintptr_t)p, .out = text};
    TRY(child_run(line, &child, status, err));
    *http = take_http(text);
    return CVN_OK;
}

/* ---- what there is ---- */

static int read_listing(Pull *p, cvn_err *err)
{
    SCOPED(strbuf_free) StrBuf path = {0}, text = {0};
    int status, http;
    strbuf_printf(&path, "/api/models/%s/revision/%s?blobs=true", p->name, p->revision);
    TRY(fetch(p, path.text, NULL, false, &text, &status, &http, err));
    if (status)
        return refuse(p, p->name, status, http, err);
    p->listing =
        json_object_parse("the list of files", text.text ? text.text : "", text.length, err);
    if (!p->listing)
        return err->code;
    p->commit = json_string_value(json_object_get(p->listing, "sha"));
    if (!p->commit || p->commit[strspn(p->commit, "0123456789abcdef")] || !*p->commit ||
        !json_is_array(json_object_get(p->listing, "siblings")))
        return err_set(err, CVN_EFORMAT,
                       "%s is not a Hugging Face hub: its response has no \"sha\" or \"siblings\"",
                       p->endpoint);
    return CVN_OK;
}

static Remote remote_at(const Pull *p, size_t i)
{
    const json_t *one = json_array_get(json_object_get(p->listing, "siblings"), i);
    const json_t *lfs = json_object_get(one, "lfs");
    const json_t *size = json_object_get(lfs, "size");
    return (Remote){.name = json_string_value(json_object_get(one, "rfilename")),
                    .sha256 = json_string_value(json_object_get(lfs, "sha256")),
                    .blob = json_string_value(json_object_get(one, "blobId")),
                    .size = json_integer_value(size ? size : json_object_get(one, "size"))};
}

/* A name that stays in the folder. */
static bool is_sound(const char *name)
{
    return name && *name && *name != '/' && *name != '.' && !strstr(name, "..") &&
           !strchr(name, '\\') && !strchr(name, '\n');
}

/* "a-00001-of-00003.gguf" -> "a-?????-of-00003.gguf": all parts of a split file. */
static FilePath parts_of(const char *file)
{
    FilePath pattern;
    snprintf(pattern.text, sizeof pattern.text, "%s", file);
    char *of = strstr(pattern.text, "-of-");
    if (of && of - pattern.text >= 6 && of[-6] == '-')
        memset(of - 5, '?', 5);
    return pattern;
}

static bool is_wanted(const Pull *p, const char *name, bool consolidated)
{
    if (p->file)
        return fnmatch(parts_of(p->file).text, name, 0) == 0;
    if (strchr(name, '/') || (consolidated && strncmp(name, "consolidated", 12) == 0))
        return false;
    for (size_t i = 0; i < NEEDED; i++)
        if (fnmatch(needed[i], name, 0) == 0)
            return true;
    return false;
}

/* Without --file: a model of safetensors, or the only GGUF file. */
static int choose(Pull *p, bool *consolidated, cvn_err *err)
{
    SCOPED(strbuf_free) StrBuf list = {0};
    const char *gguf = NULL;
    size_t n = json_array_size(json_object_get(p->listing, "siblings")), n_gguf = 0;
    bool safetensors = false, found = false;
    for (size_t i = 0; i < n; i++) {
        const char *name = remote_at(p, i).name;
        if (!is_sound(name))
            continue;
        bool whole = !strchr(name, '/');
        found |= p->file && fnmatch(parts_of(p->file).text, name, 0) == 0;
        safetensors |= whole && fnmatch("*.safetensors", name, 0) == 0;
        *consolidated |= whole && fnmatch("model*.safetensors", name, 0) == 0;
        if (fnmatch("*.gguf", name, 0) == 0) {
            gguf = n_gguf && fnmatch(parts_of(gguf).text, name, 0) == 0 ? gguf : name;
            strbuf_printf(&list, "%s%s", n_gguf++ ? ", " : "", name);
        }
    }
    if (p->file && !found)
        return err_set(err, CVN_EINVAL, "--file: %s has no %s%s%s", p->name, p->file,
                       n_gguf ? "; its GGUF files are " : "", n_gguf ? list.text : "");
    if (p->file || safetensors)
        return CVN_OK;
    if (n_gguf == 0)
        return err_set(err, CVN_EUNSUPPORTED, "%s has neither safetensors nor GGUF files", p->name);
    for (size_t i = 0; i < n; i++) {
        const char *name = remote_at(p, i).name;
        if (is_sound(name) && fnmatch("*.gguf", name, 0) == 0 &&
            fnmatch(parts_of(gguf).text, name, 0) != 0)
            return err_set(err, CVN_EINVAL, "%s has %zu GGUF files; choose one with --file: %s",
                           p->name, n_gguf, list.text);
    }
    p->file = gguf;
    return CVN_OK;
}

/* ---- digests ---- */

typedef struct Digesting {
    const char *path;
    int64_t size;
    bool blob; /* as git has it */
} Digesting;

static int feed_file(void *context, int to, cvn_err *err)
{
    const Digesting *d = context;
    char piece[65536], head[64];
    int from = open(d->path, O_RDONLY | O_CLOEXEC);
    ssize_t n = snprintf(head, sizeof head, "blob %" PRId64, d->size) + 1;
    bool fine = from >= 0 && (!d->blob || write(to, head, (size_t)n) == n);
    while (fine && (n = read(from, piece, sizeof piece)) > 0)
        for (ssize_t at = 0, k; fine && at < n; at += k) {
            k = write(to, piece + at, (size_t)(n - at));
            fine = k > 0;
        }
    if (from >= 0)
        close(from);
    return fine && n == 0 ? CVN_OK
                          : err_set(err, CVN_EIO, "cannot read %s: %s", d->path, strerror(errno));
}

static int check_digest(const Remote *r, const char *path, cvn_err *err)
{
    const char *expected = r->sha256 ? r->sha256 : r->blob;
    const char *const line[] = {r->sha256 ? "sha256sum" : "sha1sum", NULL};
    Digesting d = {path, r->size, !r->sha256};
    SCOPED(strbuf_free) StrBuf found = {0};
    int status;
    if (!expected || strlen(expected) != (r->sha256 ? 64 : 40))
        return CVN_OK; /* a mirror that tells none: the size was right */
    TRY(child_run(line, &(Child){.feed = feed_file, .context = &d, .out = &found}, &status, err));
    size_t n = strlen(expected);
    if (status || found.length < n)
        return err_set(err, CVN_EIO, "%s ended with %d", line[0], status);
    if (strncmp(found.text, expected, n) == 0)
        return CVN_OK;
    unlink(path);
    return err_set(err, CVN_EFORMAT,
                   "%s is corrupt: its digest is %.*s, expected %s; it was removed, try again",
                   r->name, (int)n, found.text, expected);
}

/* ---- fetching ---- */

static int64_t size_of(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 ? (int64_t)info.st_size : -1;
}

static FilePath place_of(const Pull *p, const Remote *r, const char *end)
{
    const char *slash = strrchr(r->name, '/');
    FilePath path = file_path(p->folder.text, slash ? slash + 1 : r->name);
    size_t n = strlen(path.text);
    snprintf(path.text + n, sizeof path.text - n, "%s", end);
    return path;
}

/* A path in an address: what could mean something else is written by its number. */
static void add_escaped(StrBuf *out, const char *name)
{
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.~/";
    for (; *name; name++) {
        if (strchr(plain, *name))
            strbuf_putc(out, *name);
        else
            strbuf_printf(out, "%%%02X", (unsigned char)*name);
    }
}

/* Goes on as long as something comes. */
static int fetch_part(const Pull *p, const Remote *r, const char *part, cvn_err *err)
{
    SCOPED(strbuf_free) StrBuf path = {0};
    strbuf_printf(&path, "/%s/resolve/%s/", p->name, p->commit);
    add_escaped(&path, r->name);
    for (int tries = 0; tries < MOST_TRIES; tries++) {
        SCOPED(strbuf_free) StrBuf text = {0};
        int status, http;
        int64_t before = size_of(part);
        if (before > r->size && unlink(part) == 0)
            before = -1;
        if (before == r->size && before > 0)
            return CVN_OK;
        TRY(fetch(p, path.text, part, before > 0, &text, &status, &http, err));
        int64_t size = size_of(part);
        if (status == 0 && size == r->size)
            return CVN_OK;
        if (status == 0)
            return err_set(err, CVN_EIO, "%s has %" PRId64 " bytes, expected %" PRId64, r->name,
                           size, r->size);
        if (status == 33 || http == 416) /* it cannot go on from the middle */
            unlink(part);
        else if (http >= 400 || status == 23 || size <= before || size <= 0)
            return refuse(p, r->name, status, http, err);
    }
    return refuse(p, r->name, 18, 0, err);
}

static int pull_file(const Pull *p, const Remote *r, cvn_err *err)
{
    const FilePath path = place_of(p, r, ""), part = place_of(p, r, ".part");
    if (size_of(path.text) == r->size) {
        fprintf(stderr, "%s is up to date\n", r->name);
        return CVN_OK;
    }
    fprintf(stderr, "%s, %s\n", r->name, bytes_text((double)r->size).text);
    if (r->size == 0)
        return file_write(path.text, "", 0, err);
    TRY(fetch_part(p, r, part.text, err));
    TRY(check_digest(r, part.text, err));
    if (rename(part.text, path.text))
        return err_set(err, CVN_EIO, "cannot rename %s: %s", part.text, strerror(errno));
    return CVN_OK;
}

static int check_room(const Pull *p, const bool *wanted, size_t n, cvn_err *err)
{
    struct statvfs disk;
    double more = 0;
    for (size_t i = 0; i < n; i++) {
        const Remote r = remote_at(p, i);
        int64_t has = size_of(place_of(p, &r, "").text),
                part = size_of(place_of(p, &r, ".part").text);
        if (wanted[i] && r.size < 0)
            return err_set(err, CVN_EFORMAT, "the list of files: the size of %s is missing",
                           r.name);
        if (wanted[i] && has != r.size)
            more += (double)(r.size - (part > 0 && part <= r.size ? part : 0));
    }
    if (statvfs(p->folder.text, &disk))
        return err_set(err, CVN_EIO, "cannot stat %s: %s", p->folder.text, strerror(errno));
    double room = (double)disk.f_bavail * (double)disk.f_frsize;
    if (more > room)
        return err_set(err, CVN_EIO,
                       "%s needs %s more, but %s has only %s free; free space, or name another "
                       "folder in CARAVAN_MODELS",
                       p->name, bytes_text(more).text, p->folder.text, bytes_text(room).text);
    return CVN_OK;
}

static int pull_by_curl(Pull *p, cvn_err *err)
{
    bool consolidated = false;
    find_token(p);
    TRY(read_listing(p, err));
    TRY(choose(p, &consolidated, err));
    size_t n = json_array_size(json_object_get(p->listing, "siblings"));
    SCOPED(scoped_free) bool *wanted = calloc(n + 1, sizeof *wanted);
    if (!wanted)
        return err_set(err, CVN_EMEM, "no memory for a list of files");
    for (size_t i = 0; i < n; i++) {
        const char *name = remote_at(p, i).name;
        wanted[i] = is_sound(name) && is_wanted(p, name, consolidated);
    }
    TRY(check_room(p, wanted, n, err));
    for (size_t i = 0; i < n; i++) {
        const Remote r = remote_at(p, i);
        if (wanted[i])
            TRY(pull_file(p, &r, err));
    }
    return CVN_OK;
}

static int pull_by_hf(const Pull *p, cvn_err *err)
{
    const char *line[8 + NEEDED + 2] = {"hf",        "download",    p->name,       "--revision",
                                        p->revision, "--local-dir", p->folder.text};
    const FilePath parts = parts_of(p->file ? p->file : "");
    int n = 7, status;
    line[n++] = "--include";
    for (size_t i = 0; !p->file && i < NEEDED; i++)
        line[n++] = needed[i];
    if (p->file)
        line[n++] = parts.text;
    line[n] = NULL;
    TRY(child_run(line, &(Child){0}, &status, err));
    return status ? err_set(err, CVN_EIO, "hf download %s failed with status %d", p->name, status)
                  : CVN_OK;
}

/* ---- the command ---- */

/* Each folder of a path. */
static int make_folders(const char *path, cvn_err *err)
{
    FilePath part;
    for (const char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        snprintf(part.text, sizeof part.text, "%.*s", (int)(slash - path), path);
        TRY(file_make_folder(part.text, err));
    }
    return file_make_folder(path, err);
}

typedef struct Found {
    const char *folder;
    int n;
} Found;

static bool print_found(void *context, const NamedModel *model)
{
    Found *f = context;
    size_t n = strlen(f->folder);
    if (strncmp(model->path, f->folder, n) == 0 && (model->path[n] == '/' || !model->path[n])) {
        printf("%-40s  %s\n", model->name, model->path);
        f->n++;
    }
    return true;
}

static int run(const Args *args, cvn_err *err)
{
    const char *endpoint = getenv("HF_ENDPOINT");
    char base[512];
    snprintf(base, sizeof base, "%s", endpoint && *endpoint ? endpoint : "https://huggingface.co");
    for (size_t n = strlen(base); n && base[n - 1] == '/'; n--)
        base[n - 1] = '\0';
    Pull p = {.name = args->operand[0],
              .revision = args->value[REVISION].text,
              .file = args->value[FILE_NAME].text,
              .endpoint = base,
              .folder = file_path(model_names_home().text, args->operand[0])};
    bool hf = child_exists("hf");
    TRY(check_asked(&p, err));
    if (!hf && !child_exists("curl"))
        return err_set(err, CVN_EUNSUPPORTED,
                       "neither hf nor curl is installed: apt-get install curl, or pip install "
                       "huggingface_hub");
    TRY(make_folders(p.folder.text, err));
    int code = hf ? pull_by_hf(&p, err) : pull_by_curl(&p, err);
    json_decref(p.listing);
    if (code)
        return code;
    Found found = {.folder = p.folder.text};
    model_names_list(print_found, &found);
    return found.n ? EXIT_OK
                   : err_set(err, CVN_EFORMAT, "%s has no model that can be opened", p.folder.text);
}

const Command command_pull = {
    "pull",
    .about = "download a model from Hugging Face",
    .usage = "NAME [options]",
    .examples = "pull HuggingFaceTB/SmolLM2-135M-Instruct\tthen: chat --model NAME\n"
                "pull some/Llama-GGUF --file llama-q4_k_m.gguf\tone file of many\n"
                "pull meta-llama/Llama-3.2-1B --revision main\tbranch, tag or commit\n",
    .notes = "Downloads the configuration, tokenizer and safetensors, or one GGUF file, into the "
             "first folder of CARAVAN_MODELS, else caravan/models in XDG_DATA_HOME "
             "(~/.local/share), with hf where it is installed, else with curl. Interrupted "
             "downloads resume, and digests are checked.\n"
             "HF_ENDPOINT names another hub or mirror. Gated models require a token in HF_TOKEN or "
             "from hf auth login.",
    .operands = "the model's name",
    .min_operands = 1,
    .max_operands = 1,
    .options = options,
    .run = run,
};
