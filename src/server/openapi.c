/* What there is, as OpenAPI has it: made of the same tables that requests are read by. */
#include "server/routes.h"

static json_t *field_schema(const Field *f)
{
    static const char *const types[] = {[FIELD_INT] = "integer",
                                        [FIELD_REAL] = "number",
                                        [FIELD_BOOL] = "boolean",
                                        [FIELD_STRING] = "string"};
    json_t *schema = json_object();
    if (f->kind > FIELD_STRING)
        return schema; /* of several shapes */
    json_object_set_new(schema, "type", json_pack("[s,s]", types[f->kind], "null"));
    if (f->low < f->high) {
        json_object_set_new(schema, "minimum", json_real(f->low));
        json_object_set_new(schema, "maximum", json_real(f->high));
    }
    return schema;
}

static json_t *body_schema(const Fields *fields)
{
    json_t *properties = json_object();
    for (const Field *const *table = fields->tables; *table; table++)
        for (const Field *f = *table; f->name; f++)
            json_object_set_new(properties, f->name, field_schema(f));
    return json_pack("{s:s,s:o,s:b}", "type", "object", "properties", properties,
                     "additionalProperties", 0);
}

static json_t *answers(const Route *r)
{
    static const struct {
        const char *status, *what;
    } errors[] = {{"400", "the request is invalid; the error names the field"},
                  {"401", "an API key is required"},
                  {"403", "the origin or host is not allowed"},
                  {"404", "the model does not exist"},
                  {"405", "the method is not supported"},
                  {"413", "the body is too large"},
                  {"429", "the queue is full"},
                  {"503", "the model is loading, or the server is shutting down"},
                  {"504", "the request timed out"}};
    const char *type = r->type ? r->type : "application/json";
    json_t *fine = json_pack("{s:s,s:{s:{}}}", "description", "the answer", "content", type);
    if (r->dialect && r->dialect->stream)
        json_object_set_new(json_object_get(fine, "content"), "text/event-stream", json_object());
    json_t *all = json_pack("{s:o}", "200", fine);
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        json_object_set_new(all, errors[i].status,
                            json_pack("{s:s,s:{s:{s:{s:s}}}}", "description", errors[i].what,
                                      "content", "application/json", "schema", "type", "object"));
    return all;
}

int answer_openapi(Server *s, Ask *ask, json_t **out, Refusal *why)
{
    json_t *paths = json_object();
    (void)s;
    (void)ask;
    (void)why;
    for (size_t i = 0; i < n_routes; i++) {
        const Route *r = &routes[i];
        const Fields *fields = r->dialect ? r->dialect->fields : r->fields;
        json_t *operation = json_pack("{s:o}", "responses", answers(r));
        if (fields)
            json_object_set_new(operation, "requestBody",
                                json_pack("{s:b,s:{s:{s:o}}}", "required", 1, "content",
                                          "application/json", "schema", body_schema(fields)));
        if (r->is_public)
            json_object_set_new(operation, "security", json_array());
        const char *method = strcmp(r->method, "POST") == 0 ? "post" : "get";
        json_object_set_new(paths, r->path, json_pack("{s:o}", method, operation));
    }
    *out = json_pack("{s:s,s:{s:s,s:s},s:[{s:[]}],s:{s:{s:{s:s,s:s}}},s:o}", "openapi", "3.1.0",
                     "info", "title", "Caravan", "version", CVN_VERSION, "security", "key",
                     "components", "securitySchemes", "key", "type", "http", "scheme", "bearer",
                     "paths", paths);
    return 200;
}
