/* The stages of a tokenizer.json around its model: normalizer, pre-tokenizer, post-processor and decoder become steps of
   rewriting and splitting. What cannot be done exactly is refused. */
#include "text/huggingface.h"
#include "text/split.h"

#include <string.h>

static const char BLANK[] = "\xe2\x96\x81"; /* U+2581 */

json_t *hf_member(const json_t *object, const char *key)
{
    json_t *value = json_object_get(object, key);
    return json_is_null(value) ? NULL : value;
}

int hf_flag(const json_t *object, const char *key, bool otherwise, bool *value, cvn_err *err)
{
    const json_t *flag = hf_member(object, key);
    *value = flag ? json_is_true(flag) : otherwise;
    if (flag && !json_is_boolean(flag))
        return err_set(err, CVN_EFORMAT, "\"%s\" must be true or false", key);
    return CVN_OK;
}

const char *hf_type(const json_t *section, const char *name, cvn_err *err)
{
    const char *type = json_string_value(json_object_get(section, "type"));
    if (!type)
        err_set(err, CVN_EFORMAT, "the %s has no \"type\"", name);
    return type;
}

/* Of a Sequence the i-th section of its list, else the section itself; NULL past the last. Nesting deeper than one Sequence
   has no use; it is refused. */
static const json_t *part_of(const json_t *section, const char *list, size_t i)
{
    const char *type = json_string_value(json_object_get(section, "type"));
    if (type && strcmp(type, "Sequence") == 0)
        return json_array_get(json_object_get(section, list), i);
    return i ? NULL : section;
}

static int unsupported(const char *section, const char *type, const char *known, cvn_err *err)
{
    return err_set(err, CVN_EUNSUPPORTED, "%s '%.60s' is not supported; supported are %s", section,
                   type, known);
}

/* A string that must be there and not be empty. */
static const char *need_string(const json_t *object, const char *key, const char *section,
                               cvn_err *err)
{
    const char *text = json_string_value(json_object_get(object, key));
    if (!text || !*text) {
        err_set(err, CVN_EFORMAT, "%s: \"%s\" must be a non-empty string", section, key);
        return NULL;
    }
    return text;
}

/* A step may make text so many times as long. */
static int grow(RewriteList *list, size_t times, const char *step, cvn_err *err)
{
    list->growth = (list->growth ? list->growth : 1) * times;
    if (list->growth > REWRITE_MAX_GROWTH)
        return err_set(err, CVN_EUNSUPPORTED,
                       "the normalizer could make text more than %d times as long, at '%.40s'",
                       REWRITE_MAX_GROWTH, step);
    return CVN_OK;
}

static int add_step(Tokenizer *t, RewriteList *list, RewriteKind kind, const char *from,
                    const char *to, cvn_err *err)
{
    if (list->n == REWRITE_MAX)
        return err_set(err, CVN_EUNSUPPORTED, "the normalizer has more than %d steps", REWRITE_MAX);
    /* Replacements multiply: eight that make a hundred characters of one would make 10^16 of it. */
    if (strlen(to) > TOKENIZER_MAX_PIECE)
        return err_set(err, CVN_EUNSUPPORTED, "the replacement '%.20s…' is longer than %d bytes",
                       to, TOKENIZER_MAX_PIECE);
    if (kind == REWRITE_REPLACE && strlen(to) > strlen(from))
        TRY(grow(list, (strlen(to) + strlen(from) - 1) / strlen(from), from, err));
    list->growth = list->growth ? list->growth : 1;
    list->step[list->n++] = (Rewrite){.kind = kind,
                                      .from = from ? arena_string(&t->arena, from) : NULL,
                                      .to = arena_string(&t->arena, to),
                                      .from_length = from ? strlen(from) : 0,
                                      .to_length = strlen(to)};
    return CVN_OK;
}

/* {"pattern": {"String": from}, "content": to} */
static int read_replace(const json_t *section, const char *name, const char **from, const char **to,
                        cvn_err *err)
{
    const json_t *pattern = json_object_get(section, "pattern");
    if (json_object_get(pattern, "Regex"))
        return unsupported(name, "Replace by Regex", "patterns that are a String", err);
    *from = need_string(pattern, "String", name, err);
    *to = json_string_value(json_object_get(section, "content"));
    if (!*from)
        return CVN_EFORMAT;
    return *to ? CVN_OK : err_set(err, CVN_EFORMAT, "%s: Replace has no \"content\"", name);
}

static int read_normalizer(Tokenizer *t, const json_t *section, cvn_err *err)
{
    const char *type = hf_type(section, "normalizer", err), *from, *to;
    if (!type)
        return CVN_EFORMAT;
    UnicodeForm form;
    if (unicode_form_named(type, &form)) {
        TRY(add_step(t, &t->normalize, REWRITE_FORM, NULL, "", err));
        t->normalize.step[t->normalize.n - 1].form = form;
        return grow(&t->normalize, (size_t)unicode_form_growth(form), type, err);
    }
    if (strcmp(type, "Prepend") == 0) {
        to = need_string(section, "prepend", "normalizer", err);
        return to ? add_step(t, &t->normalize, REWRITE_PREPEND, NULL, to, err) : CVN_EFORMAT;
    }
    if (strcmp(type, "Replace") == 0) {
        int rc = read_replace(section, "normalizer", &from, &to, err);
        return rc ? rc : add_step(t, &t->normalize, REWRITE_REPLACE, from, to, err);
    }
    return unsupported("normalizer", type,
                       "Sequence, Prepend, Replace, NFC, NFD, NFKC, NFKD and Lowercase", err);
}

int hf_read_normalizer(Tokenizer *t, const json_t *section, cvn_err *err)
{
    const json_t *part;
    int rc = CVN_OK;
    for (size_t i = 0; !rc && (part = part_of(section, "normalizers", i)); i++)
        rc = read_normalizer(t, part, err);
    return rc;
}

/* ---- pre-tokenizer ---- */

/* make: split_pattern_new or split_text_new. What isolates the matches of a pattern, or all between them, GGUF files may have a
 * name for. */
static int add_split(Tokenizer *t,
                     int (*make)(const char *, size_t, SplitBehavior, Split **, cvn_err *),
                     const char *text, SplitBehavior behavior, cvn_err *err)
{
    if (t->words.n_split == SPLIT_MAX)
        return err_set(err, CVN_EUNSUPPORTED, "the pre-tokenizer has more than %d steps",
                       SPLIT_MAX);
    bool named =
        make == split_pattern_new && (behavior == SPLIT_ISOLATED || behavior == SPLIT_KEPT);
    t->words.pattern[t->words.n_split] = named ? arena_string(&t->arena, text) : "(by a text)";
    TRY(make(text, strlen(text), behavior, &t->words.split[t->words.n_split], err));
    t->words.n_split++; /* at once: it is released with those that are counted */
    return CVN_OK;
}

/* A rewriting pre-tokenizer after a splitting one would rewrite each part; no Llama has that. */
static int add_prepare(Tokenizer *t, RewriteKind kind, const char *from, const char *to,
                       cvn_err *err)
{
    if (t->words.n_split)
        return err_set(err, CVN_EUNSUPPORTED,
                       "pre-tokenizer: a step that rewrites text after a Split is not supported");
    return add_step(t, &t->prepare, kind, from, to, err);
}

/* prepend_scheme, which older files write as add_prefix_space; NULL after an error. */
static const char *prepend_scheme(const json_t *section, cvn_err *err)
{
    bool prefix;
    const char *scheme = json_string_value(json_object_get(section, "prepend_scheme"));
    if (hf_flag(section, "add_prefix_space", true, &prefix, err))
        return NULL;
    if (!scheme)
        return prefix ? "always" : "never";
    if (strcmp(scheme, "always") != 0 && strcmp(scheme, "first") != 0 &&
        strcmp(scheme, "never") != 0) {
        unsupported("Metaspace with prepend_scheme", scheme, "always, first and never", err);
        return NULL;
    }
    return scheme;
}

static int read_metaspace(Tokenizer *t, const json_t *section, cvn_err *err)
{
    bool split;
    const char *blank = need_string(section, "replacement", "Metaspace", err);
    const char *scheme = blank ? prepend_scheme(section, err) : NULL;
    if (!scheme || hf_flag(section, "split", true, &split, err))
        return CVN_EFORMAT;
    int rc = add_prepare(t, REWRITE_REPLACE, " ", blank, err);
    if (!rc && strcmp(scheme, "never") != 0)
        rc = add_prepare(t, strcmp(scheme, "first") == 0 ? REWRITE_PREFIX_FIRST : REWRITE_PREFIX,
                         NULL, blank, err);
    return !rc && split ? add_split(t, split_text_new, blank, SPLIT_WITH_NEXT, err) : rc;
}

/* "behavior" and "invert", which makes text between matches matches, and matches text between. */
static int read_behavior(const json_t *section, const char *otherwise, SplitBehavior *behavior,
                         cvn_err *err)
{
    static const struct {
        const char *name;
        SplitBehavior plain, inverted;
    } names[] = {{"Isolated", SPLIT_ISOLATED, SPLIT_ISOLATED},
                 {"Contiguous", SPLIT_CONTIGUOUS, SPLIT_CONTIGUOUS},
                 {"MergedWithPrevious", SPLIT_WITH_PREVIOUS, SPLIT_WITH_NEXT},
                 {"MergedWithNext", SPLIT_WITH_NEXT, SPLIT_WITH_PREVIOUS},
                 {"Removed", SPLIT_REMOVED, SPLIT_KEPT}};
    bool invert;
    const char *name = otherwise;
    if (hf_member(section, "behavior") || !name)
        name = need_string(section, "behavior", "pre-tokenizer Split", err);
    if (!name || hf_flag(section, "invert", false, &invert, err))
        return CVN_EFORMAT;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i].name) == 0) {
            *behavior = invert ? names[i].inverted : names[i].plain;
            return CVN_OK;
        }
    return unsupported("pre-tokenizer Split with behavior", name,
                       "Isolated, Removed, Contiguous, MergedWithPrevious and MergedWithNext", err);
}

/* Whether the normalizer leaves no occurrence of a text: its last step replaces it. Gemma's pre-tokenizer splits by the spaces that
 * its normalizer has made U+2581 of. */
static bool is_replaced(const Tokenizer *t, const char *text)
{
    const Rewrite *last = t->normalize.n ? &t->normalize.step[t->normalize.n - 1] : NULL;
    return last && t->prepare.n == 0 && last->kind == REWRITE_REPLACE &&
           strcmp(last->from, text) == 0 && !strstr(last->to, text);
}

static int read_split(Tokenizer *t, const json_t *section, cvn_err *err)
{
    const json_t *pattern = json_object_get(section, "pattern");
    const char *regex = json_string_value(json_object_get(pattern, "Regex"));
    const char *text = json_string_value(json_object_get(pattern, "String"));
    SplitBehavior behavior;
    TRY(read_behavior(section, NULL, &behavior, err));
    if (regex)
        return add_split(t, split_pattern_new, regex, behavior, err);
    if (!text || !*text)
        return err_set(err, CVN_EFORMAT, "pre-tokenizer Split has no pattern");
    if (behavior != SPLIT_KEPT && is_replaced(t, text))
        return CVN_OK;
    return add_split(t, split_text_new, text, behavior, err);
}

/* The characters that ASCII and Unicode call punctuation. Touching ones as one word are one match of another pattern, which GGUF
 * files may have a name for. */
static int read_punctuation(Tokenizer *t, const json_t *section, cvn_err *err)
{
#define PUNCTUATION "[\\p{P}$+<=>^~|`]"
    SplitBehavior behavior;
    TRY(read_behavior(section, "Isolated", &behavior, err));
    bool together = behavior == SPLIT_CONTIGUOUS;
    return add_split(t, split_pattern_new, together ? PUNCTUATION "+" : PUNCTUATION,
                     together ? SPLIT_ISOLATED : behavior, err);
}

static int read_byte_level(Tokenizer *t, const json_t *section, bool *byte_level, cvn_err *err)
{
    bool prefix, regex;
    if (hf_flag(section, "add_prefix_space", true, &prefix, err) ||
        hf_flag(section, "use_regex", true, &regex, err))
        return CVN_EFORMAT;
    *byte_level = true;
    int rc = prefix ? add_prepare(t, REWRITE_PREFIX, NULL, " ", err) : CVN_OK;
    return !rc && regex ? add_split(t, split_pattern_new, SPLIT_GPT2, SPLIT_ISOLATED, err) : rc;
}

static int read_pre_tokenizer(Tokenizer *t, const json_t *section, bool *byte_level, cvn_err *err)
{
    bool individual;
    const char *type = hf_type(section, "pre-tokenizer", err);
    if (!type)
        return CVN_EFORMAT;
    if (strcmp(type, "Split") == 0)
        return read_split(t, section, err);
    if (strcmp(type, "Digits") == 0) {
        TRY(hf_flag(section, "individual_digits", false, &individual, err));
        return add_split(t, split_pattern_new, individual ? "\\p{N}" : "\\p{N}+", SPLIT_ISOLATED,
                         err);
    }
    if (strcmp(type, "Punctuation") == 0)
        return read_punctuation(t, section, err);
    bool bytes = strcmp(type, "ByteLevel") == 0;
    if (!bytes && strcmp(type, "Metaspace") != 0)
        return unsupported("pre-tokenizer", type,
                           "Sequence, Split, ByteLevel, Metaspace, Digits and Punctuation", err);
    if (*byte_level)
        return err_set(err, CVN_EUNSUPPORTED,
                       "pre-tokenizer '%.60s' after ByteLevel is not supported", type);
    return bytes ? read_byte_level(t, section, byte_level, err) : read_metaspace(t, section, err);
}

int hf_read_pre_tokenizer(Tokenizer *t, const json_t *section, bool *byte_level, cvn_err *err)
{
    *byte_level = false;
    const json_t *part;
    int rc = CVN_OK;
    for (size_t i = 0; !rc && (part = part_of(section, "pretokenizers", i)); i++) {
        bool spelled = *byte_level;
        int before = t->words.n_split;
        rc = read_pre_tokenizer(t, part, byte_level, err);
        if (!rc && spelled && t->words.n_split > before) {
            split_set_spelled(t->words.split[before]);
            t->words.pattern[before] = "(of the alphabet)"; /* no GGUF file says so */
        }
    }
    return rc;
}

/* ---- decoder ---- */

static int read_strip(const json_t *section, HfDecoder *decoder, cvn_err *err)
{
    const char *content = json_string_value(json_object_get(section, "content"));
    json_int_t start = json_integer_value(json_object_get(section, "start"));
    json_int_t stop = json_integer_value(json_object_get(section, "stop"));
    if (!content || strcmp(content, " ") != 0 || start < 0 || start > 1 || stop != 0)
        return err_set(err, CVN_EUNSUPPORTED,
                       "decoder Strip is only supported for one space at the start");
    decoder->space = start ? DECODE_STRIP_ONE : DECODE_KEEP_SPACE;
    return CVN_OK;
}

static int read_decoder(const json_t *section, HfDecoder *decoder, cvn_err *err)
{
    const char *type = hf_type(section, "decoder", err), *from, *to;
    if (!type)
        return CVN_EFORMAT;
    if (strcmp(type, "ByteLevel") == 0) {
        decoder->byte_level = true;
    } else if (strcmp(type, "ByteFallback") == 0) {
        decoder->byte_fallback = true;
    } else if (strcmp(type, "Replace") == 0) {
        int rc = read_replace(section, "decoder", &from, &to, err);
        if (rc)
            return rc;
        if (strcmp(from, BLANK) != 0 || strcmp(to, " ") != 0)
            return unsupported("decoder Replace of", from, "U+2581 by a space", err);
        decoder->blank = true;
    } else if (strcmp(type, "Metaspace") == 0) {
        const char *blank = need_string(section, "replacement", "decoder Metaspace", err);
        const char *scheme = blank ? prepend_scheme(section, err) : NULL;
        if (!scheme)
            return CVN_EFORMAT;
        if (strcmp(blank, BLANK) != 0)
            return unsupported("decoder Metaspace with", blank, "U+2581", err);
        decoder->blank = true;
        decoder->space = strcmp(scheme, "never") == 0 ? DECODE_KEEP_SPACE : DECODE_STRIP_FIRST;
    } else if (strcmp(type, "Strip") == 0) {
        return read_strip(section, decoder, err);
    } else if (strcmp(type, "Fuse") != 0) {
        return unsupported("decoder", type,
                           "Sequence, ByteLevel, ByteFallback, Replace, Metaspace, Fuse and Strip",
                           err);
    }
    return CVN_OK;
}

int hf_read_decoder(const json_t *section, HfDecoder *decoder, cvn_err *err)
{
    *decoder = (HfDecoder){.space = DECODE_KEEP_SPACE};
    const json_t *part;
    int rc = CVN_OK;
    for (size_t i = 0; !rc && (part = part_of(section, "decoders", i)); i++)
        rc = read_decoder(part, decoder, err);
    return rc;
}

/* ---- post-processor ---- */

/* The id of a special token in a template. */
static int32_t template_id(const Tokenizer *t, const json_t *section, const json_t *token,
                           cvn_err *err)
{
    const char *name = json_string_value(json_object_get(token, "id"));
    const json_t *entry =
        name ? json_object_get(json_object_get(section, "special_tokens"), name) : NULL;
    const json_t *ids = json_object_get(entry, "ids");
    json_int_t id = json_integer_value(json_array_get(ids, 0));
    if (json_array_size(ids) != 1 || !json_is_integer(json_array_get(ids, 0)) || id < 0 ||
        id >= t->bpe.n_ids) {
        err_set(err, CVN_EFORMAT,
                "post-processor: special token '%.60s' has no id in the vocabulary",
                name ? name : "");
        return -1;
    }
    return (int32_t)id;
}

/* "single": special tokens before and behind {"Sequence": {"id": "A"}}; at most LEAD_MAX and bos before it, and one behind it. */
static int read_template(Tokenizer *t, const json_t *section, cvn_err *err)
{
    const json_t *list = json_object_get(section, "single");
    bool behind = false;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i);
        const json_t *token = json_object_get(item, "SpecialToken");
        if (json_object_get(item, "Sequence") && !behind) {
            behind = true;
            continue;
        }
        int32_t *to = behind ? &t->ids.eos : &t->ids.bos;
        if (!token || (*to >= 0 && (behind || t->ids.n_lead == LEAD_MAX)))
            return err_set(err, CVN_EUNSUPPORTED,
                           "post-processor: the template may only have %d tokens before the text "
                           "and one after it",
                           LEAD_MAX + 1);
        if (*to >= 0)
            t->ids.lead[t->ids.n_lead++] = *to;
        *to = template_id(t, section, token, err);
        if (*to < 0)
            return CVN_EFORMAT;
    }
    if (!behind)
        return err_set(err, CVN_EFORMAT, "post-processor: the template has no place for the text");
    return CVN_OK;
}

static int read_post_processor(Tokenizer *t, const json_t *section, cvn_err *err)
{
    const char *type = hf_type(section, "post-processor", err);
    if (!type)
        return CVN_EFORMAT;
    if (strcmp(type, "TemplateProcessing") == 0)
        return read_template(t, section, err);
    if (strcmp(type, "ByteLevel") == 0) /* concerns offsets, not ids */
        return CVN_OK;
    return unsupported("post-processor", type, "Sequence, TemplateProcessing and ByteLevel", err);
}

int hf_read_post_processor(Tokenizer *t, const json_t *section, cvn_err *err)
{
    const json_t *part;
    int rc = CVN_OK;
    for (size_t i = 0; !rc && (part = part_of(section, "processors", i)); i++)
        rc = read_post_processor(t, part, err);
    return rc;
}
