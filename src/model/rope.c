/*
 * Rotary positions past the length of pretraining: the frequencies of a model, by seven rules.
 *
 *     plain      theta^(-2i / head_dim)
 *     linear     all divided by the factor: positions interpolated (Chen et al. 2023, arXiv:2306.15595)
 *     dynamic    theta raised, so that the highest frequency stays and the lowest is divided by how much longer the text
 *                is: theta * s^(head_dim / (head_dim - 2)), s = factor * length / trained - (factor - 1), as transformers
 *                has it; or s = alpha, whatever the length (NTK-aware, as Hunyuan has it)
 *     yarn       frequencies that turn often within the trained length kept, those that hardly turn divided by the
 *                factor, a ramp between; what attention sees is a little sharper (Peng et al. 2023, arXiv:2309.00071)
 *     llama3     as yarn, with a ramp over wavelengths (Meta's llama-models, apply_scaling)
 *     longrope   each divided by a number of its own, of which a model has two lists: for texts within the trained length
 *                and for longer ones; what attention sees is a little sharper (Ding et al. 2024, arXiv:2402.13753)
 *     proportional   plain, but pairs behind a fraction of a head do not turn, though pairs span the whole head (Gemma 4)
 *
 * Of a head, the first dimensions may turn alone: then all of this is about a head of so many.
 *
 * Dynamic scaling by length meets a cache: keys lie there turned, and the length grows. transformers turns new keys by
 * the new frequencies and leaves the old ones, so that what it answers depends on how a text came in. Here the length is
 * that of the cache (of a row, in training), fixed when an engine is made: answers do not depend on how a text came in,
 * a context within the trained length has the plain frequencies, and a longer one those that transformers has for a text
 * that fills it.
 */
#include "model/block.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define TWO_PI 6.283185307179586

static const char *const names[] = {[ROPE_PLAIN] = "default",
                                    [ROPE_LINEAR] = "linear",
                                    [ROPE_DYNAMIC] = "dynamic",
                                    [ROPE_YARN] = "yarn",
                                    [ROPE_LLAMA3] = "llama3",
                                    [ROPE_LONGROPE] = "longrope",
                                    [ROPE_PROPORTIONAL] = "proportional"};

const char *rope_scaling_name(RopeScaling scaling)
{
    return names[scaling];
}

bool rope_scaling_parse(const char *name, RopeScaling *out)
{
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0) {
            *out = (RopeScaling)i;
            return true;
        }
    return false;
}

static int check_length(const Rope *r, const char *file, cvn_err *err)
{
    if (r->original_context < 1 || r->original_context > 1 << 30)
        return err_set(err, CVN_EFORMAT,
                       "'%s': original_max_position_embeddings is %" PRId64
                       "; it must be from 1 to 2^30",
                       file, r->original_context);
    if (r->scaling != ROPE_LLAMA3 && !(r->sharpness > 0 && r->sharpness <= 1e3))
        return err_set(err, CVN_EFORMAT,
                       "'%s': the attention factor of %s is %g; it must be over 0 and at most 1e3",
                       file, names[r->scaling], r->sharpness);
    return CVN_OK;
}

static int check_ramp(const Rope *r, const char *file, cvn_err *err)
{
    if (!(r->temper >= 0 && r->temper <= 100))
        return err_set(err, CVN_EFORMAT,
                       "'%s': llama_4_scaling_beta is %g; it must be from 0 to 100", file,
                       r->temper);
    bool yarn = r->scaling == ROPE_YARN;
    const bool rises = r->ramp[1] > r->ramp[0] || (!yarn && r->ramp[1] == r->ramp[0]);
    if (!(r->ramp[0] > 0 && rises && r->ramp[1] <= 1e9))
        return err_set(err, CVN_EFORMAT, "'%s': %s rope scaling needs 0 < %s < %s, not %g and %g",
                       file, names[r->scaling], yarn ? "beta_slow" : "low_freq_factor",
                       yarn ? "beta_fast" : "high_freq_factor", r->ramp[0], r->ramp[1]);
    return check_length(r, file, err);
}

int64_t rope_pairs(const Attention *a)
{
    return a->rope.scaling == ROPE_PROPORTIONAL
               ? a->head_dim / 2
               : (int64_t)((double)a->head_dim * a->rope.fraction) / 2;
}

int rope_check(const Attention *a, const char *file, cvn_err *err)
{
    const Rope *r = &a->rope;
    if (!(r->theta > 1 && r->theta <= 1e18))
        return err_set(err, CVN_EFORMAT,
                       "'%s': rope_theta is %g; it must be over 1 and at most 1e18", file,
                       r->theta);
    if (!(r->fraction > 0 && r->fraction <= 1) || rope_pairs(a) < 1)
        return err_set(err, CVN_EFORMAT,
                       "'%s': %g of a head of %" PRId64
                       " are rotated (partial_rotary_factor); it must be over 0 and at most 1, and "
                       "two dimensions at least",
                       file, r->fraction, a->head_dim);
    if (r->scaling == ROPE_PLAIN || r->scaling == ROPE_PROPORTIONAL)
        return CVN_OK;
    bool dynamic = r->scaling == ROPE_DYNAMIC, alpha = dynamic && r->alpha != 0;
    double factor = alpha ? r->alpha : r->factor;
    if (!(factor > 0 && factor <= 1e9))
        return err_set(err, CVN_EFORMAT,
                       "'%s': the rope scaling %s is %g; it must be over 0 and at most 1e9", file,
                       alpha ? "alpha" : "factor", factor);
    if (dynamic && a->head_dim < 4)
        return err_set(err, CVN_EFORMAT,
                       "'%s': heads of %" PRId64 " are too narrow for dynamic rope scaling; it "
                       "needs 4",
                       file, a->head_dim);
    for (int list = 0; r->scaling == ROPE_LONGROPE && list < 2; list++)
        for (int64_t i = 0; i < rope_pairs(a); i++)
            if (!(r->divisors[list][i] > 0 && r->divisors[list][i] <= 1e9))
                return err_set(err, CVN_EFORMAT,
                               "'%s': the %s factors of longrope have %g; they must be over 0 and "
                               "at most 1e9",
                               file, list ? "long" : "short", r->divisors[list][i]);
    if (r->scaling == ROPE_LONGROPE)
        return check_length(r, file, err);
    bool ramp = r->scaling == ROPE_YARN || r->scaling == ROPE_LLAMA3;
    return ramp ? check_ramp(r, file, err) : CVN_OK;
}

double rope_theta(const Attention *a, int64_t context, int64_t length)
{
    double trained = (double)context, dim = (double)(2 * rope_pairs(a));
    if (a->rope.scaling != ROPE_DYNAMIC)
        return a->rope.theta;
    double longer = fmax((double)length, trained) / trained;
    double s = a->rope.alpha != 0 ? a->rope.alpha : 1 + a->rope.factor * (longer - 1);
    return a->rope.theta * pow(s, dim / (dim - 2));
}

double rope_longrope_sharpness(double factor, int64_t original)
{
    return factor <= 1 ? 1 : sqrt(1 + log(factor) / log((double)original));
}

double rope_yarn_sharpness(double factor, double mscale)
{
    return factor <= 1 ? 1 : 0.1 * mscale * log(factor) + 1;
}

/* The pair, a real number, whose frequency turns so often within the trained length. */
static double turning_pair(const Attention *a, double turns)
{
    double length = (double)a->rope.original_context, dim = (double)(2 * rope_pairs(a));
    return dim * log(length / (turns * TWO_PI)) / (2 * log(a->rope.theta));
}

/* Pairs before the ramp turn often, pairs after it hardly. */
static double yarn_scaled(const Attention *a, double frequency, double pair)
{
    double low = turning_pair(a, a->rope.ramp[1]), high = turning_pair(a, a->rope.ramp[0]);
    if (a->rope.truncate) {
        low = floor(low);
        high = ceil(high);
    }
    low = fmax(low, 0);
    high = fmin(high, (double)(2 * rope_pairs(a)) - 1);
    high = low == high ? high + 0.001 : high;
    double divided = fmin(fmax((pair - low) / (high - low), 0), 1);
    return frequency / a->rope.factor * divided + frequency * (1 - divided);
}

static double llama3_scaled(const Rope *r, double frequency)
{
    double waves = (double)r->original_context * frequency / TWO_PI;
    if (waves < r->ramp[0])
        return frequency / r->factor;
    if (waves >= r->ramp[1])
        return frequency;
    double smooth = (waves - r->ramp[0]) / (r->ramp[1] - r->ramp[0]);
    return (1 - smooth) * frequency / r->factor + smooth * frequency;
}

void rope_frequencies(const Attention *a, int64_t context, int64_t length, double *out)
{
    const Rope *r = &a->rope;
    const double theta = rope_theta(a, context, length);
    const int64_t pairs = rope_pairs(a);
    const int64_t turning =
        r->scaling == ROPE_PROPORTIONAL ? (int64_t)((double)a->head_dim * r->fraction) / 2 : pairs;
    for (int64_t i = 0; i < pairs; i++) {
        double frequency = pow(theta, -(double)i / (double)pairs);
        if (r->scaling == ROPE_LINEAR)
            frequency /= r->factor;
        else if (r->scaling == ROPE_YARN)
            frequency = yarn_scaled(a, frequency, (double)i);
        else if (r->scaling == ROPE_LLAMA3)
            frequency = llama3_scaled(r, frequency);
        else if (r->scaling == ROPE_LONGROPE)
            frequency /= r->divisors[length > r->original_context][i];
        out[i] = i < turning ? frequency : 0;
    }
}

/* What yarn and longrope multiply what they rotate by, both queries and keys: a layer that rotates nothing is as it was. */
static double sharpness_of(const Rope *r)
{
    bool sharpens = r->scaling == ROPE_YARN || r->scaling == ROPE_LONGROPE;
    return sharpens && !r->off ? r->sharpness : 1;
}

double attention_sharpening(const Attention *a)
{
    return 2 * rope_pairs(a) == a->head_dim ? 1 : sharpness_of(&a->rope);
}

/* Where all of a head rotates, their products are multiplied at once. */
double attention_scale(const Attention *a)
{
    double sharper = sharpness_of(&a->rope) / attention_sharpening(a);
    return a->scale != 0 ? sharper * sharper * a->scale
                         : sharper * sharper / sqrt((double)a->head_dim);
}
