/* The table of paths. */
#ifndef CVN_SERVER_ROUTES_H
#define CVN_SERVER_ROUTES_H

#include "server/internal.h"

typedef struct Route {
    const char *method, *path;
    bool is_public;                                                 /* needs no API key */
    const Dialect *dialect;                                         /* texts are generated; or */
    int (*answer)(Server *s, Ask *ask, json_t **out, Refusal *why); /* returns the status; or */
    void (*text)(Server *s, StrBuf *out);                           /* of `type`; or */
    const char *page, *page_end;                                    /* bytes of `type` */
    const char *type;
    const Fields *fields; /* of `answer`: what its body has; NULL: none */
} Route;

extern const Route routes[];
extern const size_t n_routes;

/* The route of a path and method, else one of the path with another method, else NULL. */
const Route *routes_find(const char *path, const char *method);

/* openapi.c */
int answer_openapi(Server *s, Ask *ask, json_t **out, Refusal *why);

/* utilities.c */
int answer_count_tokens(Server *s, Ask *ask, json_t **out, Refusal *why);
int answer_tokenize(Server *s, Ask *ask, json_t **out, Refusal *why);
int answer_detokenize(Server *s, Ask *ask, json_t **out, Refusal *why);
int answer_apply_template(Server *s, Ask *ask, json_t **out, Refusal *why);

/* page.c: the web interface, which is compiled in, as pairs of begin and end. */
extern const char page_html[], page_html_end[], page_css[], page_css_end[], page_js[],
    page_js_end[];

/* 64 unpredictable bits. */
uint64_t routes_random(void);

#endif
