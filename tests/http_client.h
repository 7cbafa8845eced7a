/* A client of HTTP for tests: a request at a time, on a socket of its own, and what came back. */
#ifndef CVN_TESTS_HTTP_CLIENT_H
#define CVN_TESTS_HTTP_CLIENT_H

#include "base/strbuf.h"
#include "unit.h"

#include <arpa/inet.h>
#include <jansson.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

/* An answer. */
typedef struct Reply {
    int status; /* 0: the connection was closed without one */
    StrBuf head, body;
} Reply;

static inline void reply_free(Reply *r)
{
    strbuf_free(&r->head);
    strbuf_free(&r->body);
}

static inline int http_connect(int port)
{
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct timeval patience = {.tv_sec = 300};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    if (connect(fd, (struct sockaddr *)&to, sizeof to)) {
        close(fd);
        return -1;
    }
    return fd;
}

/* headers: lines that end in \r\n, or "". */
static inline void http_send(int fd, const char *method, const char *path, const char *headers,
                             const char *body)
{
    StrBuf text = {0};
    strbuf_printf(&text, "%s %s HTTP/1.1\r\n%s%s", method, path,
                  strstr(headers, "Host:") ? "" : "Host: localhost\r\n", headers);
    if (body)
        strbuf_printf(&text, "Content-Length: %zu\r\n", strlen(body));
    strbuf_puts(&text, "Connection: close\r\n\r\n");
    if (body)
        strbuf_puts(&text, body);
    for (size_t at = 0; at < text.length;) {
        ssize_t n = send(fd, text.text + at, text.length - at, MSG_NOSIGNAL);
        if (n <= 0)
            break;
        at += (size_t)n;
    }
    strbuf_free(&text);
}

/* Chunks of Transfer-Encoding: chunked put together. */
static inline void http_join(StrBuf *body)
{
    StrBuf all = {0};
    strbuf_add(&all, "", 0);
    const char *at = body->text, *end = body->text + body->length;
    while (at < end) {
        char *after;
        size_t n = (size_t)strtoul(at, &after, 16);
        at = strstr(after, "\r\n");
        if (!n || !at || (size_t)(end - at) < n + 2)
            break;
        strbuf_add(&all, at + 2, n);
        at += 2 + n + 2;
    }
    strbuf_free(body);
    *body = all;
}

static inline Reply http_receive(int fd)
{
    Reply r = {0};
    StrBuf all = {0};
    char piece[4096];
    ssize_t n;
    strbuf_add(&all, "", 0);
    while ((n = recv(fd, piece, sizeof piece, 0)) > 0)
        strbuf_add(&all, piece, (size_t)n);
    close(fd);
    const char *blank = strstr(all.text, "\r\n\r\n");
    if (blank) {
        strbuf_add(&r.head, all.text, (size_t)(blank - all.text) + 2);
        strbuf_add(&r.body, blank + 4, all.length - (size_t)(blank + 4 - all.text));
        r.status = (int)strtol(r.head.text + strcspn(r.head.text, " "), NULL, 10);
        if (strstr(r.head.text, "Transfer-Encoding: chunked"))
            http_join(&r.body);
    } else {
        strbuf_add(&r.head, "", 0);
        strbuf_add(&r.body, "", 0);
    }
    strbuf_free(&all);
    return r;
}

static inline Reply http_ask(int port, const char *method, const char *path, const char *headers,
                             const char *body)
{
    int fd = http_connect(port);
    if (fd < 0)
        return (Reply){0};
    http_send(fd, method, path, headers, body);
    return http_receive(fd);
}

/* A value below an object: names and numbers of places, "choices.0.message.content"; NULL: there is none. */
static inline const json_t *json_at(const json_t *json, const char *path)
{
    while (json && *path) {
        char name[64];
        size_t n = strcspn(path, ".");
        snprintf(name, sizeof name, "%.*s", (int)n, path);
        json = json_is_array(json) ? json_array_get(json, (size_t)strtoul(name, NULL, 10))
                                   : json_object_get(json, name);
        path += n + (path[n] == '.');
    }
    return json;
}

/* All strings at `path` of the events of a stream, one after the other; the caller frees them. */
static inline char *stream_text(const Reply *r, const char *path)
{
    StrBuf text = {0};
    strbuf_add(&text, "", 0);
    for (const char *at = strstr(r->body.text, "data: "); at; at = strstr(at, "\ndata: ")) {
        at = strchr(at, '{');
        if (!at)
            break;
        json_t *event = json_loadb(at, strcspn(at, "\n"), JSON_ALLOW_NUL, NULL);
        const char *piece = json_string_value(json_at(event, path));
        strbuf_puts(&text, piece ? piece : "");
        json_decref(event);
    }
    return text.text;
}

#endif
