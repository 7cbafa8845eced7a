/*
 * Data of several parts: a mixture by weights, and a validation split that is files of its own.
 *
 * Of every BLOCK rows in a row each part has as many as its weight says, in an order that is drawn for each block: which
 * row of which part row i is remains a function of i, and a part that is used up begins its next epoch.
 *
 *     a.jsonl=0.7 b.txt=0.3     of rows 0 … 999 700 are of a and 300 of b, and of rows 1000 … 1999 the next ones
 */
#include "train/data/data_impl.h"

#include <math.h>

enum { BLOCK = 1000 };

static int share_block(TrainData *data, const double *weight, cvn_err *err)
{
    double sum = 0;
    int64_t left = BLOCK;
    size_t n = data->n_parts;
    for (size_t i = 0; i < n; i++)
        sum += weight[i];
    for (size_t i = 0; i < n; i++) {
        data->share[i] = (int64_t)(BLOCK * weight[i] / sum);
        left -= data->share[i];
    }
    for (; left > 0; left--) { /* one more to whose share was cut the most */
        size_t most = 0;
        double cut = -1;
        for (size_t i = 0; i < n; i++) {
            double gone = BLOCK * weight[i] / sum - (double)data->share[i];
            most = gone > cut ? i : most;
            cut = fmax(cut, gone);
        }
        data->share[most]++;
    }
    for (size_t i = 0; i < n; i++)
        if (data->share[i] == 0)
            return err_set(err, CVN_EINVAL,
                           "%g is less than a thousandth of the sum of weights, %g; leave these "
                           "data out or increase their weight",
                           weight[i], sum);
    return CVN_OK;
}

int data_mix_open(TrainData *data, const DataOptions *options, cvn_err *err)
{
    size_t n = options->n_paths, weighted = 0;
    double *weight = arena_array(&data->arena, n, sizeof *weight);
    for (size_t i = 0; i < n; i++) {
        source_path(options->paths[i], &weight[i]);
        weighted += weight[i] > 0;
    }
    if (weighted == 0)
        return CVN_OK;
    if (weighted < n)
        return err_set(err, CVN_EINVAL,
                       "either all or none of the data must have a weight (FILE=0.7)");
    data->part = arena_array(&data->arena, n, sizeof *data->part);
    data->share = arena_array(&data->arena, n, sizeof *data->share);
    data->order = rng_key(options->seed, "order of parts");
    for (; data->n_parts < n; data->n_parts++) {
        DataOptions one = *options;
        FilePath path = source_path(options->paths[data->n_parts], NULL);
        const char *only = path.text;
        one.paths = &only;
        one.n_paths = 1;
        one.held = NULL;
        TRY(data_open(&data->part[data->n_parts], &one, err));
    }
    for (size_t i = 0; i < n; i++) {
        const TrainData *part = data->part[i];
        data->report.tokens += part->report.tokens;
        data->report.documents += part->report.documents;
        data->report.made |= part->report.made;
        data->report.bytes += part->report.bytes;
        data->report.seconds += part->report.seconds;
        for (int split = 0; split < DATA_SPLITS; split++)
            data->rows[split].n += part->rows[split].n;
    }
    data->report.cache = data->part[0]->report.cache;
    return share_block(data, weight, err);
}

int data_held_open(TrainData *data, const DataOptions *options, cvn_err *err)
{
    DataOptions held = *options;
    if (!options->held)
        return CVN_OK;
    if (options->validation > 0)
        return err_set(err, CVN_EINVAL,
                       "validation is either a fraction of the data or a file, not both");
    held.paths = &options->held;
    held.n_paths = 1;
    held.held = NULL;
    TRY(data_open(&data->held, &held, err));
    data->rows[DATA_VALIDATION].n = data->held->rows[DATA_TRAIN].n;
    return CVN_OK;
}

DataPlace data_place(const TrainData *data, DataSplit split, int64_t i)
{
    if (data->held && split == DATA_VALIDATION)
        return (DataPlace){data->held, DATA_TRAIN, i % data->held->rows[DATA_TRAIN].n, true};
    if (data->n_parts == 0)
        return (DataPlace){data, split, i, split == DATA_VALIDATION};
    if (split == DATA_TRAIN) {
        int64_t block = i / BLOCK,
                place = data_permute(data->order, (uint64_t)block, i % BLOCK, BLOCK);
        size_t part = 0;
        while (place >= data->share[part])
            place -= data->share[part++];
        return data_place(data->part[part], split, block * data->share[part] + place);
    }
    i %= data->rows[split].n;
    size_t part = 0;
    while (i >= data->part[part]->rows[split].n)
        i -= data->part[part++]->rows[split].n;
    return (DataPlace){data->part[part], split, i, true};
}
