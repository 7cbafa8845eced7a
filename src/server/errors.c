/* Errors in the shapes that clients parse. */
#include "server/internal.h"

static const struct {
    int status;
    const char *openai, *anthropic;
} kinds[] = {
    {400, "invalid_request_error", "invalid_request_error"},
    {401, "authentication_error", "authentication_error"},
    {403, "permission_error", "permission_error"},
    {404, "not_found_error", "not_found_error"},
    {405, "invalid_request_error", "invalid_request_error"},
    {413, "invalid_request_error", "request_too_large"},
    {415, "invalid_request_error", "invalid_request_error"},
    {429, "rate_limit_error", "rate_limit_error"},
    {503, "service_unavailable_error", "overloaded_error"},
    {504, "timeout_error", "timeout_error"},
    {500, "server_error", "api_error"},
};

json_t *dialect_error(const char *path, const Refusal *why)
{
    enum { N = sizeof kinds / sizeof *kinds };
    int i = 0;
    while (i < N - 1 && kinds[i].status != why->status)
        i++;
    json_t *message = json_text_of(why->err.message, strlen(why->err.message));
    if (strncmp(path, "/v1/messages", 12) == 0)
        return json_pack("{s:s,s:{s:s,s:o}}", "type", "error", "error", "type", kinds[i].anthropic,
                         "message", message);
    return json_pack("{s:{s:o,s:s,s:o,s:s?}}", "error", "message", message, "type", kinds[i].openai,
                     "param",
                     *why->param ? json_text_of(why->param, strlen(why->param)) : json_null(),
                     "code", why->code);
}
