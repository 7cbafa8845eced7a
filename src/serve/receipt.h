/*
 * Receipts: what a text came from and what it was, so that whoever has the same files can compute it again and see that it is
 * the same, token by token. A receipt is a JSON object:
 *
 *     "receipt"     1, the version of this form
 *     "weights"     SHA-256 of the names, types, shapes and bytes of all tensors
 *     "tokenizer"   of its file's hash and the bytes of all pieces; null without one
 *     "template"    of the chat template's source; null without one
 *     "program"     what else the numbers depend on: version, kernels, numerics, types of weights and caches, context
 *     "request"     prompt as token ids, how tokens are drawn, seed; "drawn": false where something that is not in the receipt had a say
 *                   (a constraint, biases), so that the tokens are taken as they are and only their logits are computed again
 *     "tokens"      ids
 *     "logprobs"    ln p of each, by the model's own logits
 *     "chain"       of each token, 16 digits of the digest so far
 *     "logits"      the digest behind the last one: digest i = SHA-256(digest i - 1, CRC-32C of the logits i, logprob i, token i)
 *
 * The digest of a text is thus that of all its logits: two receipts with the same one came from the same bits.
 */
#ifndef CVN_SERVE_RECEIPT_H
#define CVN_SERVE_RECEIPT_H

#include "base/strbuf.h"
#include "serve/engine.h"

#include <jansson.h>

enum { RECEIPT_DIGEST = 32 };

typedef struct ReceiptToken {
    int32_t id;
    float logprob;
    uint64_t chain; /* the first bytes of the digest */
} ReceiptToken;

/* Of a text that is being drawn; {0} is an empty one. */
typedef struct Receipt {
    ReceiptToken *token; /* [n] owned */
    size_t n;
    uint8_t digest[RECEIPT_DIGEST];
    bool failed; /* there was no memory */
} Receipt;

void receipt_free(Receipt *receipt);

/* The next token, and the logits [vocab] that it was drawn from: what a cvn_logits_fn is given. */
void receipt_add(Receipt *receipt, const float *logits, int64_t vocab, int32_t token);

/* The digests of all tensors, and of a tokenizer (null for NULL); NULL without memory. */
json_t *receipt_weights(const IoTensors *tensors);
json_t *receipt_tokenizer(const Tokenizer *tokenizer);

/* What all receipts of an engine have in common: weights to program. Reads all weights. *out is the caller's. */
int receipt_model(const cvn_engine *engine, json_t **out, cvn_err *err);

/* The whole: `model` as above, borrowed. NULL without memory. */
json_t *receipt_json(const Receipt *receipt, const json_t *model, const cvn_request *request);

/* The same as a line behind others. */
int receipt_line(const Receipt *receipt, const json_t *model, const cvn_request *request,
                 StrBuf *lines, cvn_err *err);

/* ---- computing it again ---- */

/* How the two differ: at token `at`, which was `was` and is `is`; at = n: nowhere. */
typedef struct ReceiptDifference {
    size_t at, n; /* n: tokens */
    ReceiptToken was, is;
} ReceiptDifference;

/* Draws the text of a receipt again. engine: one slot, with options.logits_processors. */
int receipt_replay(cvn_engine *engine, const json_t *receipt, ReceiptDifference *out, cvn_err *err);

#endif
