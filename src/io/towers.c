#include "io/towers.h"

#include "base/bytes.h"
#include "base/strbuf.h"

#include <string.h>

int towers_check(const Model *model, bool text_only, const char *path, cvn_err *err)
{
    if (text_only || !model_within(model))
        return CVN_OK;
    return err_set(err, CVN_EUNSUPPORTED,
                   "'%s' sees or hears (its model_type is '%s'), which is not supported; "
                   "--text-only loads its text model and leaves the rest out",
                   path, model_within(model));
}

/* What follows the beginning of a name; NULL where it begins otherwise. */
static const char *behind(const char *name, const char *beginning)
{
    const size_t n = strlen(beginning);
    return strncmp(name, beginning, n) == 0 ? name + n : NULL;
}

/* The name of a tensor in the text model alone; NULL: it is of something else. */
static const char *text_name(const char *name, Arena *arena)
{
    const char *rest = behind(name, "model.language_model.");
    if (rest)
        return arena_printf(arena, "model.%s", rest);
    return behind(name, "lm_head.") ? name : behind(name, "language_model.");
}

/* Parts of a model by the beginnings of their tensors' names: "vision_tower, multi_modal_projector". */
static void list_part(StrBuf *parts, const char *name)
{
    const char *rest = behind(name, "model.");
    name = rest ? rest : name;
    const size_t n = strcspn(name, ".");
    for (const char *at = parts->text; at; at = strchr(at, ' '), at += at != NULL)
        if (strncmp(at, name, n) == 0 && (at[n] == ',' || !at[n]))
            return;
    strbuf_printf(parts, "%s%.*s", parts->length ? ", " : "", (int)n, name);
}

int towers_leave_out(IoTensors *list, Model *model, const char *path, cvn_err *err)
{
    const IoTensors from = *list;
    SCOPED(strbuf_free) StrBuf parts = {0};
    double bytes = 0;
    io_tensors_init(list, from.arena);
    for (size_t i = 0; i < from.n; i++) {
        IoTensor t = from.tensor[i];
        const char *name = text_name(t.name, from.arena);
        if (name) {
            t.name = name;
            TRY(io_tensors_add(list, &t, err));
        } else {
            list_part(&parts, t.name);
            bytes += (double)t.bytes;
        }
    }
    if (parts.failed)
        return err_set(err, CVN_EMEM, "no memory to read '%s'", path);
    if (parts.text)
        model_warn(model, "only the text model is loaded; left out are %zu tensors, %s: %.400s",
                   from.n - list->n, bytes_text(bytes).text, parts.text);
    return CVN_OK;
}
