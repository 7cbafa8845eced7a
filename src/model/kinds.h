/* What parameters there are, by kinds, and how files name them: the columns of kinds.def that tables go by. */
#ifndef CVN_MODEL_KINDS_H
#define CVN_MODEL_KINDS_H

typedef enum ParamKind {
#define PARAM(KIND, name, place, presence, role, a, b, c, hf, meta, gguf) PARAM_##KIND,
#include "model/kinds.def"
#undef PARAM
    PARAM_KIND_COUNT
} ParamKind;

/* How the families of files name the same tensors. */
typedef enum ParamNaming {
    NAMING_HF,   /* Hugging Face folders; also the names that initialisation is keyed by */
    NAMING_META, /* Meta's consolidated.*.pth */
    NAMING_GGUF,
    NAMING_COUNT
} ParamNaming;

#endif
