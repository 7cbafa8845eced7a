#include "model/family.h"

#include <stdio.h>
#include <string.h>

/* The build lists the files of src/model/families, FAMILY(llama) and so on: a family more is a file more. */
#define FAMILY(name) extern const Family family_##name;
#include <families.inc>
#undef FAMILY

static const Family *const families[] = {
#define FAMILY(name) &family_##name,
#include <families.inc>
#undef FAMILY
};
enum { FAMILIES = sizeof families / sizeof *families };

const Family *family_at(int i)
{
    return i < FAMILIES ? families[i] : NULL;
}

const Family *family_by_name(const char *name)
{
    for (int i = 0; i < FAMILIES; i++)
        if (strcmp(families[i]->name, name) == 0)
            return families[i];
    return NULL;
}

const Family *family_by_gguf(const char *architecture)
{
    for (int i = 0; i < FAMILIES; i++)
        if (families[i]->gguf && strcmp(families[i]->gguf, architecture) == 0)
            return families[i];
    return NULL;
}

const char *family_names(bool gguf, char *text, size_t size)
{
    size_t n = 0;
    for (int i = 0; i < FAMILIES; i++) {
        const char *name = gguf ? families[i]->gguf : families[i]->name;
        if (name && n < size)
            n += (size_t)snprintf(text + n, size - n, "%s'%s'", n ? ", " : "", name);
    }
    return text;
}

const char *family_tensor_name(const Family *family, ParamKind kind, ParamNaming naming,
                               const char *usual)
{
    if ((naming == NAMING_META && !family->meta) || (naming == NAMING_GGUF && !family->gguf))
        return NULL;
    for (const TensorName *t = family->tensors; t && (t->name[0] || t->name[NAMING_GGUF]); t++)
        if (t->kind == kind && t->name[naming])
            return t->name[naming];
    return usual;
}
