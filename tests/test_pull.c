/*
 * caravan pull against a hub of this test, which serves a model of random weights on the loopback: whole, cut short, damaged and
 * refused. The program hf is kept out of the PATH, and once put into it as a script that says what it was asked.
 */
#include "shell.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <jansson.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/stat.h>

/* What the hub does wrong, and what it was asked. */
static struct {
    int socket, port;
    size_t most;   /* bytes of a file that it sends before it hangs up; 0: all */
    int status;    /* that it answers everything with, or 0 */
    bool damages;  /* the last byte of a file is another */
    bool no_range; /* it sends files from their beginning, whatever was asked */
    char lied[64]; /* a file that is said to have so many bytes more */
    long long lie;
    StrBuf log; /* a line for each request: path, range and token */
} hub;

static void run_line(const char *line, StrBuf *out)
{
    int status;
    *out = shell(line, &status);
    if (status)
        fail_msg("%s: %s", line, out->text);
}

/* The digest that a program of coreutils prints. */
static const char *digest(const char *line, char text[80])
{
    StrBuf out;
    run_line(line, &out);
    snprintf(text, 80, "%.*s", (int)strcspn(out.text, " \n"), out.text);
    strbuf_free(&out);
    return text;
}

static char *listing(void)
{
    char line[512], path[512], sum[80];
    struct dirent **entry;
    struct stat info;
    json_t *files = json_array();
    int n = scandir(in_scratch("repo"), &entry, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        const char *name = entry[i]->d_name;
        snprintf(path, sizeof path, "%s/repo/%s", scratch, name);
        if (name[0] != '.' && stat(path, &info) == 0) {
            json_t *file =
                json_pack("{s:s,s:I}", "rfilename", name, "size",
                          (json_int_t)info.st_size + (strcmp(name, hub.lied) == 0 ? hub.lie : 0));
            if (strstr(name, ".safetensors") || strstr(name, ".gguf")) {
                snprintf(line, sizeof line, "sha256sum repo/%s", name);
                json_object_set_new(file, "lfs",
                                    json_pack("{s:s,s:O}", "sha256", digest(line, sum), "size",
                                              json_object_get(file, "size")));
            } else {
                snprintf(line, sizeof line, "(printf 'blob %lld\\0'; cat repo/%s) | sha1sum",
                         (long long)info.st_size, name);
                json_object_set_new(file, "blobId", json_string(digest(line, sum)));
            }
            json_array_append_new(files, file);
        }
        free(entry[i]);
    }
    free(entry);
    json_array_append_new(files, json_pack("{s:s,s:i}", "rfilename", "../evil.json", "size", 3));
    json_t *all = json_pack("{s:s,s:o}", "sha", "0123abcd", "siblings", files);
    char *text = json_dumps(all, 0);
    json_decref(all);
    return text;
}

static void send_all(int to, const char *bytes, size_t n)
{
    while (n) {
        ssize_t k = send(to, bytes, n, MSG_NOSIGNAL);
        if (k <= 0)
            return;
        bytes += k;
        n -= (size_t)k;
    }
}

static void answer_file(int to, const char *name, size_t from)
{
    char path[512], head[256];
    snprintf(path, sizeof path, "%s/repo/%s", scratch, name);
    FILE *file = fopen(path, "r");
    if (!file) {
        send_all(to, "HTTP/1.1 404 no\r\nContent-Length: 0\r\n\r\n", 39);
        return;
    }
    fseek(file, 0, SEEK_END);
    size_t size = (size_t)ftell(file), n = size;
    char *bytes = malloc(size + 1);
    rewind(file);
    assert_int_equal(fread(bytes, 1, size, file), size);
    fclose(file);
    if (hub.damages && size)
        bytes[size - 1] ^= 1;
    from = hub.no_range ? 0 : from < size ? from : size;
    n -= from;
    int h = snprintf(head, sizeof head,
                     from ? "HTTP/1.1 206 part\r\nContent-Length: %zu\r\nContent-Range: bytes "
                            "%zu-%zu/%zu\r\nConnection: close\r\n\r\n"
                          : "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\nConnection: close\r\n\r\n",
                     n, from, size - 1, size);
    send_all(to, head, (size_t)h);
    send_all(to, bytes + from, hub.most && hub.most < n ? hub.most : n);
    free(bytes);
}

static void answer(int to)
{
    char request[8192], path[512] = "", head[128];
    size_t n = 0;
    ssize_t k;
    while (n < sizeof request - 1 && (k = recv(to, request + n, sizeof request - 1 - n, 0)) > 0) {
        n += (size_t)k;
        request[n] = '\0';
        if (strstr(request, "\r\n\r\n"))
            break;
    }
    sscanf(request, "GET %511s", path);
    const char *range = strstr(request, "Range: bytes="), *key = strstr(request, "Bearer ");
    size_t from = range ? strtoul(range + 13, NULL, 10) : 0;
    strbuf_printf(&hub.log, "%s %zu %.6s\n", path, from, key ? key + 7 : "-");
    if (hub.status) {
        int h =
            snprintf(head, sizeof head, "HTTP/1.1 %d no\r\nContent-Length: 0\r\n\r\n", hub.status);
        send_all(to, head, (size_t)h);
    } else if (strncmp(path, "/api/models/org/tiny/revision/main", 34) == 0) {
        char *text = listing();
        int h = snprintf(head, sizeof head, "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n",
                         strlen(text));
        send_all(to, head, (size_t)h);
        send_all(to, text, strlen(text));
        free(text);
    } else if (strncmp(path, "/org/tiny/resolve/0123abcd/", 27) == 0) {
        answer_file(to, path + 27, from);
    } else {
        send_all(to, "HTTP/1.1 404 no\r\nContent-Length: 0\r\n\r\n", 39);
    }
    close(to);
}

static void *serve(void *unused)
{
    int to;
    while ((to = accept(hub.socket, NULL, NULL)) >= 0)
        answer(to);
    return unused;
}

static int start(void **state)
{
    pthread_t thread;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof at;
    if (make_models(state))
        return -1;
    hub.socket = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(hub.socket, (struct sockaddr *)&at, n) || listen(hub.socket, 8) ||
        getsockname(hub.socket, (struct sockaddr *)&at, &n))
        return -1;
    hub.port = ntohs(at.sin_port);
    StrBuf out;
    run_line("mkdir repo bin && cp model/*.json model/*.safetensors repo && echo hello "
             ">repo/README.md && "
             "echo x >repo/pytorch_model.bin && echo none >repo/LICENSE && : >repo/merges.txt && "
             "for p in curl sha256sum sha1sum cat; do ln -s $(command -v $p) bin; done",
             &out);
    strbuf_free(&out);
    return pthread_create(&thread, NULL, serve, NULL) || pthread_detach(thread);
}

static int stop(void **state)
{
    shutdown(hub.socket, SHUT_RDWR);
    strbuf_free(&hub.log);
    return remove_scratch(state);
}

/* Runs `caravan pull` with these arguments; what it prints of both kinds. */
static void pull(int status, const char *arguments, const char *piece)
{
    char line[1024];
    strbuf_clear(&hub.log);
    strbuf_puts(&hub.log, "");
    snprintf(line, sizeof line,
             "env -u HF_TOKEN -u HF_HOME PATH=$HOME/bin HF_ENDPOINT=http://127.0.0.1:%d/ "
             "CARAVAN_MODELS=$HOME/models:$HOME/none " CVN_BINARY " pull %s 2>&1",
             hub.port, arguments);
    expect(status, line, piece);
}

static bool has_curl(void)
{
    int status;
    StrBuf out = shell("command -v curl && command -v sha256sum", &status);
    strbuf_free(&out);
    return status == 0;
}

static void a_model_comes_with_what_it_needs_and_no_more(void **state)
{
    if (!has_curl())
        skip();
    expect(0, "rm -rf models", "");
    pull(0, "org/tiny", "org/tiny");
    expect(0, "ls models/org/tiny | tr '\\n' ' '", "LICENSE config.json ");
    expect(1, "ls models/org/tiny | grep -E 'README|bin|part|evil'", "");
    expect(0,
           "cmp repo/model.safetensors models/org/tiny/model.safetensors && cmp repo/config.json "
           "models/org/tiny/config.json && ls models/org/tiny/merges.txt",
           "merges");
    expect(0, "CARAVAN_MODELS=models caravan models", "models/org/tiny");
    expect(0, "CARAVAN_MODELS=models caravan generate -m org/tiny -p a -n 3 2>/dev/null", "");
    pull(0, "org/tiny", "config.json is up to date"); /* nothing is fetched twice */
    assert_null(strstr(hub.log.text, "resolve"));
    expect(0,
           "XDG_DATA_HOME=$HOME/data; mkdir -p data/caravan && mv models data/caravan/models && "
           "export XDG_DATA_HOME && caravan models",
           "data/caravan/models/org/tiny");
    expect(0, "rm -rf data", "");
}

static void what_was_cut_short_goes_on(void **state)
{
    if (!has_curl())
        skip();
    expect(0,
           "rm -rf models; mkdir -p models/org/tiny; head -c 1000 repo/model.safetensors "
           ">models/org/tiny/model.safetensors.part",
           "");
    pull(0, "org/tiny", "");
    assert_non_null(strstr(hub.log.text, "model.safetensors 1000 "));
    expect(0,
           "cmp repo/model.safetensors models/org/tiny/model.safetensors && ls models/org/tiny | "
           "grep -c part; true",
           "0\n");
    /* A hub that hangs up again and again is asked for the rest. */
    struct stat info;
    assert_int_equal(stat(in_scratch("repo/model.safetensors"), &info), 0);
    hub.most = (size_t)info.st_size / 3;
    expect(0, "rm -rf models", "");
    pull(0, "org/tiny", "");
    expect(0, "cmp repo/model.safetensors models/org/tiny/model.safetensors", "");
    hub.most = (size_t)info.st_size / 20; /* more often than it is asked: the next run goes on */
    expect(0, "rm -rf models/org/tiny/model.safetensors", "");
    pull(1, "org/tiny", "the connection ended early; repeat the command to resume");
    hub.most = 0;
    pull(0, "org/tiny", "");
    assert_null(strstr(hub.log.text, "model.safetensors 0 "));
    expect(0, "cmp repo/model.safetensors models/org/tiny/model.safetensors", "");
    /* One that knows no ranges sends it from the beginning; a part that is too long is not one. */
    hub.no_range = true;
    expect(0,
           "cd models/org/tiny && head -c 9 model.safetensors >model.safetensors.part; rm "
           "model.safetensors; "
           "cat config.json config.json >config.json.part; rm config.json",
           "");
    pull(0, "org/tiny", "");
    hub.no_range = false;
    expect(0,
           "cmp repo/model.safetensors models/org/tiny/model.safetensors && cmp repo/config.json "
           "models/org/tiny/config.json",
           "");
}

static void what_is_damaged_is_not_kept(void **state)
{
    if (!has_curl())
        skip();
    expect(0, "rm -rf models", "");
    hub.damages = true;
    pull(1, "org/tiny", "is corrupt: its digest is ");
    hub.damages = false;
    expect(1, "ls models/org/tiny | grep -E 'part|LICENSE'", "");
    pull(0, "org/tiny", "");
    /* The listing says another size. */
    snprintf(hub.lied, sizeof hub.lied, "model.safetensors");
    hub.lie = 5;
    expect(0, "rm models/org/tiny/model.safetensors", "");
    pull(1, "org/tiny", " bytes, expected ");
    hub.lie = 1LL << 60;
    pull(1, "org/tiny", "free space, or name another folder in CARAVAN_MODELS");
    hub.lied[0] = '\0';
    expect(0,
           "rm -f models/org/tiny/*.part; ln -s /dev/full models/org/tiny/model.safetensors.part",
           "");
    pull(1, "org/tiny", "is the disk full?");
    expect(0, "rm models/org/tiny/*.part", "");
    pull(0, "org/tiny", "");
}

static void a_refusal_is_one_sentence(void **state)
{
    if (!has_curl())
        skip();
    static const struct {
        int status;
        const char *says;
    } cases[] = {{401, "give a token in HF_TOKEN"},
                 {403, "accept its licence"},
                 {404, "has no org/tiny (HTTP 404)"},
                 {429, "rate limit exceeded"},
                 {500, "HTTP 500"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        hub.status = cases[i].status;
        pull(1, "org/tiny", cases[i].says);
        pull(1, "org/tiny 2>&1 | wc -l; false", "1\n");
    }
    hub.status = 0;
    pull(1, "org/none", "has no org/none (HTTP 404)");
    pull(1, "org/tiny --revision none", "HTTP 404");
    pull(1, "org/tiny --revision ../x", "is not a branch, tag or commit");
    pull(1, "nothing", "is not the name of a model");
    pull(1, "org/tiny --file x.gguf", "--file: org/tiny has no x.gguf");
    expect(1, "HF_ENDPOINT=ftp://x caravan pull org/tiny 2>&1",
           "HF_ENDPOINT: ftp://x does not begin");
    expect(1,
           "PATH=$HOME/bin HF_ENDPOINT=http://127.0.0.1:1 CARAVAN_MODELS=models caravan pull "
           "org/tiny 2>&1",
           "cannot connect");
    expect(1, "mkdir -p none; PATH=$HOME/none CARAVAN_MODELS=models caravan pull org/tiny 2>&1",
           "neither hf nor curl is installed");
    char line[512];
    snprintf(line, sizeof line,
             "PATH=$HOME/bin HF_TOKEN=secret HF_ENDPOINT=http://127.0.0.1:%d CARAVAN_MODELS=models "
             "caravan pull org/tiny 2>&1",
             hub.port);
    expect(0, line, "org/tiny");
    assert_non_null(strstr(hub.log.text, " secret\n"));
}

static void of_gguf_files_one_comes(void **state)
{
    if (!has_curl())
        skip();
    expect(
        0,
        "rm -rf models; mv repo kept; mkdir repo; caravan convert model repo/a-q8_0.gguf --to gguf "
        ">/dev/null 2>&1; cp repo/a-q8_0.gguf repo/b.gguf; for i in 1 2; do echo $i "
        ">repo/c-0000$i-of-00002.gguf; done; ls repo | wc -l",
        "4\n");
    pull(1, "org/tiny", "choose one with --file: a-q8_0.gguf, b.gguf, ");
    pull(0, "org/tiny --file b.gguf", "org/tiny/b.gguf");
    expect(0, "ls models/org/tiny", "b.gguf\n");
    expect(0, "CARAVAN_MODELS=models caravan generate -m org/tiny/b.gguf -p a -n 3 2>/dev/null",
           "");
    pull(0, "org/tiny --file c-00001-of-00002.gguf", "");
    expect(0, "ls models/org/tiny | wc -l", "3\n");
    expect(0, "rm repo/a* repo/c* && rm -rf models", "");
    pull(0, "org/tiny", "org/tiny/b.gguf"); /* the only one */
    expect(0, "rm repo/b.gguf; echo x >repo/pytorch_model.bin; true", "");
    pull(1, "org/tiny", "neither safetensors nor GGUF files");
    expect(0, "rm -rf repo; mv kept repo", "");
}

static void hf_does_it_where_it_is_installed(void **state)
{
    expect(0,
           "rm -rf models; printf '#!/bin/sh\\necho \"$*\" >\"$HOME/asked\"; cp \"$HOME\"/repo/* "
           "\"$6\"; exit ${HF_STATUS:-0}\\n' "
           ">bin/hf; chmod +x bin/hf; ln -sf $(command -v cp) bin",
           "");
    pull(0, "org/tiny --revision v1", "org/tiny");
    expect(0, "cat asked", "download org/tiny --revision v1 --local-dir ");
    expect(0, "cat asked", "/models/org/tiny --include config.json ");
    assert_string_equal(hub.log.text, "");
    expect(1, "PATH=$HOME/bin HF_STATUS=3 CARAVAN_MODELS=models caravan pull org/tiny 2>&1",
           "hf download org/tiny failed with status 3");
    expect(0, "rm bin/hf", "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_model_comes_with_what_it_needs_and_no_more),
        cmocka_unit_test(what_was_cut_short_goes_on),
        cmocka_unit_test(what_is_damaged_is_not_kept),
        cmocka_unit_test(a_refusal_is_one_sentence),
        cmocka_unit_test(of_gguf_files_one_comes),
        cmocka_unit_test(hf_does_it_where_it_is_installed),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
