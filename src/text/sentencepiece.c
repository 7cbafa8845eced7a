/*
 * Reads SentencePiece models: `tokenizer.model` of Llama 1 and 2. The file is one protocol buffer message (base/protobuf.h;
 * sentencepiece_model.proto, google/sentencepiece):
 *
 *     ModelProto      1 pieces (repeated SentencePiece), 2 TrainerSpec, 3 NormalizerSpec, 5 denormalizer
 *     SentencePiece   1 piece (UTF-8), 2 score (float), 3 type: 1 normal (default), 2 unknown, 3 control, 4 user defined,
 *                     5 unused, 6 byte
 *     TrainerSpec     3 model_type: 1 unigram (default), 2 BPE, 3 word, 4 char; 24 whitespace as suffix; 35 byte_fallback;
 *                     44 unk_surface; 46 bos_piece, 47 eos_piece, 48 pad_piece
 *     NormalizerSpec  2 precompiled_charsmap, 3 add_dummy_prefix, 4 remove_extra_whitespaces, 5 escape_whitespaces (the last
 *                     three default to true)
 *
 * The id of a piece is its place. Only BPE models are read: a unigram model's scores mean something
 * else (log-probabilities of a path through the text), and merging by them would give wrong ids.
 */
#include "base/heap.h"
#include "base/protobuf.h"
#include "text/tokenizer_impl.h"
#include "text/utf8.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int malformed(const char *what, cvn_err *err)
{
    return err_set(
        err, CVN_EFORMAT,
        "the SentencePiece model is malformed: %s cannot be read; download the file again", what);
}

static int wrong_type(const char *what, cvn_err *err)
{
    return err_set(
        err, CVN_EFORMAT,
        "the SentencePiece model is malformed: %s has the wrong wire type; download the file again",
        what);
}

enum { TYPE_NORMAL = 1, TYPE_UNKNOWN, TYPE_CONTROL, TYPE_USER, TYPE_UNUSED, TYPE_BYTE };

typedef struct SpmPiece {
    const char *text; /* [length] in the file */
    size_t length;
    float score;
    uint64_t type;
} SpmPiece;

typedef struct SpmModel {
    SpmPiece *piece; /* [n] heap */
    size_t n;
    uint64_t model_type; /* 1 unigram, 2 BPE, 3 word, 4 char */
    bool byte_fallback;
    Proto unknown_surface; /* what an unknown piece decodes to */
    Proto bos, eos, pad;   /* the pieces' text */
    SpmNormalizer normalizer;
    bool has_charsmap; /* text is normalized by a table */
} SpmModel;

static int read_piece(Proto proto, SpmPiece *piece, cvn_err *err)
{
    *piece = (SpmPiece){.type = TYPE_NORMAL};
    ProtoField field;
    while (proto_next(&proto, &field)) {
        if (field.number == 1) {
            if (field.wire != PROTO_BYTES)
                return wrong_type("a piece", err);
            piece->text = (const char *)field.bytes.at;
            piece->length = proto_length(field.bytes);
        } else if (field.number == 2) {
            if (field.wire != PROTO_FIXED32)
                return wrong_type("a score", err);
            memcpy(&piece->score, &field.value, sizeof piece->score);
        } else if (field.number == 3) {
            if (field.wire != PROTO_VARINT)
                return wrong_type("a piece's type", err);
            piece->type = field.value;
        }
    }
    if (proto.at != proto.end)
        return malformed("a piece", err);
    return CVN_OK;
}

static int read_trainer(Proto proto, SpmModel *model, cvn_err *err)
{
    struct {
        uint32_t number;
        Proto *to;
    } texts[] = {
        {44, &model->unknown_surface}, {46, &model->bos}, {47, &model->eos}, {48, &model->pad}};
    ProtoField field;
    while (proto_next(&proto, &field)) {
        if ((field.number == 3 || field.number == 24 || field.number == 35) &&
            field.wire != PROTO_VARINT)
            return wrong_type("the trainer specification", err);
        if (field.number == 3)
            model->model_type = field.value;
        else if (field.number == 24)
            model->normalizer.space_as_suffix = field.value != 0;
        else if (field.number == 35)
            model->byte_fallback = field.value != 0;
        for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
            if (field.number != texts[i].number)
                continue;
            if (field.wire != PROTO_BYTES)
                return wrong_type("the trainer specification", err);
            *texts[i].to = field.bytes;
        }
    }
    return proto.at == proto.end ? CVN_OK : malformed("the trainer specification", err);
}

static int read_normalizer(Proto proto, SpmModel *model, cvn_err *err)
{
    ProtoField field;
    while (proto_next(&proto, &field)) {
        if ((field.number == 2 && field.wire != PROTO_BYTES) ||
            (field.number >= 3 && field.number <= 5 && field.wire != PROTO_VARINT))
            return wrong_type("the normalizer specification", err);
        if (field.number == 2)
            model->has_charsmap |= field.bytes.at != field.bytes.end;
        else if (field.number == 3)
            model->normalizer.add_dummy_prefix = field.value != 0;
        else if (field.number == 4)
            model->normalizer.remove_extra_whitespaces = field.value != 0;
        else if (field.number == 5)
            model->normalizer.escape_whitespaces = field.value != 0;
    }
    return proto.at == proto.end ? CVN_OK : malformed("the normalizer specification", err);
}

static Proto proto_text(const char *text)
{
    const uint8_t *p = (const uint8_t *)text;
    return (Proto){p, p + strlen(text)};
}

static int read_model(Proto proto, SpmModel *model, cvn_err *err)
{
    *model = (SpmModel){.model_type = 1,
                        .unknown_surface = proto_text(" \xe2\x81\x87 "),
                        .bos = proto_text("<s>"),
                        .eos = proto_text("</s>"),
                        .pad = proto_text("<pad>"),
                        .normalizer = {true, true, true, false}};
    ProtoField field;
    while (proto_next(&proto, &field)) {
        int rc = CVN_OK;
        if (field.number >= 1 && field.number <= 5 && field.wire != PROTO_BYTES)
            return wrong_type("a part of the model", err);
        if (field.number == 1) {
            if (model->n == TOKENIZER_MAX_IDS)
                return err_set(err, CVN_EFORMAT, "the SentencePiece model has more than %d pieces",
                               TOKENIZER_MAX_IDS);
            SpmPiece *piece = heap_more(model->piece, model->n, sizeof *piece);
            if (!piece)
                return err_set(err, CVN_EMEM, "no memory for %zu pieces", model->n + 1);
            model->piece = piece;
            rc = read_piece(field.bytes, &model->piece[model->n++], err);
        } else if (field.number == 2) {
            rc = read_trainer(field.bytes, model, err);
        } else if (field.number == 3 || field.number == 5) {
            rc = read_normalizer(field.bytes, model, err);
        }
        if (rc)
            return rc;
    }
    return proto.at == proto.end ? CVN_OK : malformed("a field of the model", err);
}

/* ---- from the model to the tokenizer's tables ---- */

static int check_model(const SpmModel *model, cvn_err *err)
{
    static const char *const names[] = {"", "unigram", "BPE", "word", "char"};
    if (model->n == 0)
        return err_set(err, CVN_EFORMAT,
                       "the SentencePiece model has no pieces; download the file again");
    if (model->model_type != 2)
        return err_set(
            err, CVN_EUNSUPPORTED,
            "the SentencePiece model is of type '%s', and only BPE models (Llama 1 and 2) are "
            "supported",
            model->model_type < 5 ? names[model->model_type] : "unknown");
    if (model->has_charsmap)
        return err_set(err, CVN_EUNSUPPORTED,
                       "the SentencePiece model has a normalization table (such as nmt_nfkc); only "
                       "the identity normalizer of Llama is supported");
    for (size_t i = 0; i < model->n; i++) {
        const SpmPiece *piece = &model->piece[i];
        if (piece->length == 0 || piece->length > TOKENIZER_MAX_PIECE)
            return err_set(err, CVN_EFORMAT,
                           "SentencePiece piece %zu has %zu bytes, expected 1 to %d", i,
                           piece->length, TOKENIZER_MAX_PIECE);
        if (!utf8_valid(piece->text, piece->length))
            return err_set(err, CVN_EFORMAT, "SentencePiece piece %zu is not UTF-8", i);
        if (!isfinite(piece->score))
            return err_set(err, CVN_EFORMAT,
                           "SentencePiece piece %zu has a score that is not a number", i);
        if (piece->type < TYPE_NORMAL || piece->type > TYPE_BYTE || piece->type == TYPE_UNUSED)
            return err_set(
                err, CVN_EUNSUPPORTED,
                "SentencePiece piece %zu is of type %llu; normal, unknown, control, user "
                "defined and byte are supported",
                i, (unsigned long long)piece->type);
    }
    return CVN_OK;
}

static int add_piece(Tokenizer *t, const SpmModel *model, int32_t id, cvn_err *err)
{
    static const PieceKind kinds[] = {[TYPE_NORMAL] = PIECE_NORMAL,
                                      [TYPE_UNKNOWN] = PIECE_UNKNOWN,
                                      [TYPE_CONTROL] = PIECE_SPECIAL,
                                      [TYPE_USER] = PIECE_USER,
                                      [TYPE_BYTE] = PIECE_BYTE};
    const SpmPiece *from = &model->piece[id];
    bool added = true;
    bpe_set_piece(&t->bpe, id, kinds[from->type], from->text, from->length);
    if (from->type == TYPE_NORMAL) {
        added = bpe_index(&t->bpe, id);
        bpe_set_out(&t->bpe, id, from->text, from->length, true);
    } else if (from->type == TYPE_BYTE) {
        int byte = piece_byte(from->text, from->length);
        if (byte < 0 || t->bpe.byte_id[byte] >= 0)
            return err_set(
                err, CVN_EFORMAT,
                "SentencePiece piece %d is of type byte, but its text is not one of <0x00> to "
                "<0xFF>, each once",
                id);
        t->bpe.byte_id[byte] = id;
        bpe_set_byte(&t->bpe, id, (unsigned char)byte);
    } else {
        *map_put(&t->special, from->text, from->length, &added) = (uint64_t)id;
        if (from->type == TYPE_USER)
            bpe_set_out(&t->bpe, id, from->text, from->length, true);
    }
    if (from->type == TYPE_UNKNOWN) {
        if (t->bpe.unknown >= 0)
            return err_set(err, CVN_EFORMAT,
                           "SentencePiece pieces %d and %d are both of type unknown",
                           t->bpe.unknown, id);
        t->bpe.unknown = id;
        const Proto *surface = &model->unknown_surface;
        bpe_set_out(&t->bpe, id, (const char *)surface->at, proto_length(*surface), false);
    }
    if (!added)
        return err_set(err, CVN_EFORMAT,
                       "SentencePiece piece %d repeats the text of an earlier piece", id);
    return CVN_OK;
}

/* Bytes stand for characters the vocabulary lacks when the model says so; then all 256 must be
 * there. */
static int check_bytes(Tokenizer *t, const SpmModel *model, cvn_err *err)
{
    if (!model->byte_fallback)
        memset(t->bpe.byte_id, 0xff, sizeof t->bpe.byte_id);
    for (int byte = 0; model->byte_fallback && byte < 256; byte++)
        if (t->bpe.byte_id[byte] < 0)
            return err_set(err, CVN_EFORMAT,
                           "the SentencePiece model has byte fallback, but no piece <0x%02X>",
                           byte);
    if (t->bpe.unknown < 0)
        return err_set(err, CVN_EFORMAT, "the SentencePiece model has no piece of type unknown");
    return CVN_OK;
}

static int by_score(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return x > y ? -1 : x < y;
}

/* Ranks: the highest score merges first; equal scores share a rank, as the leftmost decides then. */
static int add_merges(Tokenizer *t, const SpmModel *model, cvn_err *err)
{
    float *score = malloc(model->n * sizeof *score);
    Cleanup cleanup;
    if (!score)
        return err_set(err, CVN_EMEM, "no memory for %zu scores", model->n);
    cleanup_push(&cleanup, free, score);
    for (size_t i = 0; i < model->n; i++)
        score[i] = model->piece[i].score;
    qsort(score, model->n, sizeof *score, by_score);
    size_t n = 0;
    for (size_t i = 0; i < model->n; i++)
        if (n == 0 || score[n - 1] != score[i])
            score[n++] = score[i];
    for (size_t i = 0; i < model->n; i++) {
        if (model->piece[i].type != TYPE_NORMAL)
            continue;
        const float *place = bsearch(&model->piece[i].score, score, n, sizeof *score, by_score);
        bpe_add_splits(&t->bpe, (int32_t)i, (uint32_t)(place - score));
    }
    cleanup_run(&cleanup);
    return CVN_OK;
}

static int32_t control_id(const Tokenizer *t, Proto text)
{
    const uint64_t *id = map_get(&t->special, text.at, proto_length(text));
    return id && t->bpe.piece[*id].kind == PIECE_SPECIAL ? (int32_t)*id : -1;
}

/* Control pieces and the unknown one are looked for in raw text when asked for, user-defined ones always, after
 * rewriting. */
static void add_tokens(Tokenizer *t, const SpmModel *model)
{
    Added *control = arena_array(&t->arena, model->n, sizeof *control);
    Added *user = arena_array(&t->arena, model->n, sizeof *user);
    size_t n_control = 0, n_user = 0;
    for (int32_t id = 0; id < t->bpe.n_ids; id++) {
        const BpePiece *piece = &t->bpe.piece[id];
        Added added = {.text = piece->text, .length = (size_t)piece->length, .id = id};
        added.kind = piece->kind == PIECE_USER ? ADDED_PIECE : ADDED_SPECIAL;
        if (piece->kind == PIECE_SPECIAL || piece->kind == PIECE_UNKNOWN)
            control[n_control++] = added;
        else if (piece->kind == PIECE_USER)
            user[n_user++] = added;
    }
    added_set_init(&t->raw, control, n_control);
    added_set_init(&t->normalized, user, n_user);
}

static int build(Tokenizer *t, const SpmModel *model, cvn_err *err)
{
    int rc = check_model(model, err);
    if (rc)
        return rc;
    t->kind = "sentencepiece";
    bpe_init(&t->bpe, &t->arena, (int32_t)model->n, model->n);
    t->bpe.fuse_unknown = true;
    for (int32_t id = 0; !rc && id < t->bpe.n_ids; id++)
        rc = add_piece(t, model, id, err);
    if (!rc)
        rc = check_bytes(t, model, err);
    if (rc)
        return rc;
    for (size_t i = 0; i < model->n; i++) {
        const SpmPiece *piece = &model->piece[i];
        for (size_t k = 0; piece->type == TYPE_NORMAL && k < piece->length;) {
            size_t length = (size_t)utf8_length(piece->text + k, piece->length - k);
            bpe_character(&t->bpe, piece->text + k, length);
            k += length;
        }
    }
    TRY(add_merges(t, model, err));
    add_tokens(t, model);
    t->normalize.step[t->normalize.n++] =
        (Rewrite){.kind = REWRITE_SENTENCEPIECE, .spm = model->normalizer};
    t->words.joined = true;
    t->ids.bos = control_id(t, model->bos);
    t->ids.eos = control_id(t, model->eos);
    t->ids.pad = control_id(t, model->pad);
    if (model->normalizer.remove_extra_whitespaces)
        t->decoding.space = DECODE_STRIP_EACH;
    else if (model->normalizer.add_dummy_prefix)
        t->decoding.space = DECODE_STRIP_ONE;
    return bpe_finish(&t->bpe, false, err);
}

int sentencepiece_read(Tokenizer *t, const char *bytes, size_t n, cvn_err *err)
{
    const unsigned char *p = (const unsigned char *)bytes;
    SpmModel model;
    int rc = read_model((Proto){p, p + n}, &model, err);
    Cleanup cleanup;
    cleanup_push(&cleanup, free, model.piece);
    if (!rc)
        rc = build(t, &model, err);
    cleanup_run(&cleanup);
    return rc;
}
