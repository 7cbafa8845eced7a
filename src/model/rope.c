/*
 * Rotary positions past the length of pretraining: the frequencies of a model, by five rules.
 *
 *     plain      theta^(-2i / head_dim)
 *     linear     all divided by the factor: positions interpolated (Chen et al. 2023, arXiv:2306.15595)
 *     dynamic    theta raised, so that the highest frequency stays and the lowest is divided by how much longer the text
 *                is: theta * s^(head_dim / (head_dim - 2)), s = factor * length / trained - (factor - 1), as transformers
 *                has it; or s = alpha, whatever the length (NTK-aware, as Hunyuan has it)
 *     yarn       frequencies that turn often within the trained length kept, those that hardly turn divided by the
 *                factor, a ramp between; what attention sees is a little sharper (Peng et al. 2023, arXiv:2309.00071)
 *     llama3     as yarn, with a ramp over wavelengths (Meta's llama-models, apply_scaling)
 *
 * Dynamic scaling by length meets a cache: keys lie there turned, and the length grows. transformers turns new keys by
 * the new frequencies and leaves the old ones, so that what it answers depends on how a text came in. Here the length is
 * that of the cache (of a row, in training), fixed when an engine is made: answers do not depend on how a text came in,
 * a context within the trained length has the plain frequencies, and a longer one those that transformers has for a text
 * that fills it.
 */
#include "model/model.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define TWO_PI 6.283185307179586

static const char *const names[] = {[ROPE_PLAIN] = "default",
                                    [ROPE_LINEAR] = "linear",
                                    [ROPE_DYNAMIC] = "dynamic",
                                    [ROPE_YARN] = "yarn",
                                    [ROPE_LLAMA3] = "llama3"};

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

static int check_ramp(const Model *c, const char *file, cvn_err *err)
{
    const double *ramp = c->rope_ramp;
    bool yarn = c->rope_scaling == ROPE_YARN;
    if (!(ramp[0] > 0 && ramp[1] > ramp[0] && ramp[1] <= 1e9))
        return err_set(err, CVN_EFORMAT, "'%s': %s rope scaling needs 0 < %s < %s, not %g and %g",
                       file, names[c->rope_scaling], yarn ? "beta_slow" : "low_freq_factor",
                       yarn ? "beta_fast" : "high_freq_factor", ramp[0], ramp[1]);
    if (c->rope_original_context < 1 || c->rope_original_context > 1 << 30)
        return err_set(err, CVN_EFORMAT,
                       "'%s': original_max_position_embeddings is %" PRId64
                       "; it must be from 1 to 2^30",
                       file, c->rope_original_context);
    if (yarn && !(c->rope_attention > 0 && c->rope_attention <= 1e3))
        return err_set(
            err, CVN_EFORMAT,
            "'%s': the attention factor of yarn is %g; it must be over 0 and at most 1e3", file,
            c->rope_attention);
    return CVN_OK;
}

int rope_check(const Model *c, const char *file, cvn_err *err)
{
    if (!(c->rope_theta > 1 && c->rope_theta <= 1e18))
        return err_set(err, CVN_EFORMAT,
                       "'%s': rope_theta is %g; it must be over 1 and at most 1e18", file,
                       c->rope_theta);
    if (c->rope_scaling == ROPE_PLAIN)
        return CVN_OK;
    bool dynamic = c->rope_scaling == ROPE_DYNAMIC, alpha = dynamic && c->rope_alpha != 0;
    double factor = alpha ? c->rope_alpha : c->rope_factor;
    if (!(factor > 0 && factor <= 1e9))
        return err_set(err, CVN_EFORMAT,
                       "'%s': the rope scaling %s is %g; it must be over 0 and at most 1e9", file,
                       alpha ? "alpha" : "factor", factor);
    if (dynamic && c->head_dim < 4)
        return err_set(err, CVN_EFORMAT,
                       "'%s': heads of %" PRId64 " are too narrow for dynamic rope scaling; it "
                       "needs 4",
                       file, c->head_dim);
    bool ramp = c->rope_scaling == ROPE_YARN || c->rope_scaling == ROPE_LLAMA3;
    return ramp ? check_ramp(c, file, err) : CVN_OK;
}

int64_t model_longest_context(const Model *c)
{
    if (c->rope_scaling != ROPE_DYNAMIC || c->rope_alpha != 0 || c->rope_factor <= 1)
        return c->max_context;
    return (int64_t)fmin((double)c->max_context * c->rope_factor, 1 << 30);
}

double model_rope_theta(const Model *c, int64_t length)
{
    double trained = (double)c->max_context, dim = (double)c->head_dim;
    if (c->rope_scaling != ROPE_DYNAMIC)
        return c->rope_theta;
    double longer = fmax((double)length, trained) / trained;
    double s = c->rope_alpha != 0 ? c->rope_alpha : 1 + c->rope_factor * (longer - 1);
    return c->rope_theta * pow(s, dim / (dim - 2));
}

double rope_yarn_attention(double factor, double mscale)
{
    return factor <= 1 ? 1 : 0.1 * mscale * log(factor) + 1;
}

/* The pair, a real number, whose frequency turns so often within the trained length. */
static double turning_pair(const Model *c, double turns)
{
    double length = (double)c->rope_original_context, dim = (double)c->head_dim;
    return dim * log(length / (turns * TWO_PI)) / (2 * log(c->rope_theta));
}

/* Pairs before the ramp turn often, pairs after it hardly. */
static double yarn_scaled(const Model *c, double frequency, double pair)
{
    double low = turning_pair(c, c->rope_ramp[1]), high = turning_pair(c, c->rope_ramp[0]);
    if (c->rope_truncate) {
        low = floor(low);
        high = ceil(high);
    }
    low = fmax(low, 0);
    high = fmin(high, (double)c->head_dim - 1);
    high = low == high ? high + 0.001 : high;
    double divided = fmin(fmax((pair - low) / (high - low), 0), 1);
    return frequency / c->rope_factor * divided + frequency * (1 - divided);
}

static double llama3_scaled(const Model *c, double frequency)
{
    double waves = (double)c->rope_original_context * frequency / TWO_PI;
    const double *ramp = c->rope_ramp;
    if (waves < ramp[0])
        return frequency / c->rope_factor;
    if (waves > ramp[1])
        return frequency;
    double smooth = (waves - ramp[0]) / (ramp[1] - ramp[0]);
    return (1 - smooth) * frequency / c->rope_factor + smooth * frequency;
}

void model_rope_frequencies(const Model *c, int64_t length, double *out)
{
    double theta = model_rope_theta(c, length);
    for (int64_t i = 0; i < c->head_dim / 2; i++) {
        double frequency = pow(theta, -2.0 * (double)i / (double)c->head_dim);
        if (c->rope_scaling == ROPE_LINEAR)
            frequency /= c->rope_factor;
        else if (c->rope_scaling == ROPE_YARN)
            frequency = yarn_scaled(c, frequency, (double)i);
        else if (c->rope_scaling == ROPE_LLAMA3)
            frequency = llama3_scaled(c, frequency);
        out[i] = frequency;
    }
}

double model_attention_scale(const Model *c)
{
    double sharper = c->rope_scaling == ROPE_YARN ? c->rope_attention : 1;
    return sharper * sharper / sqrt((double)c->head_dim);
}
