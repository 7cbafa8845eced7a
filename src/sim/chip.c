#include "sim/chip.h"

#include "base/json_file.h"
#include "base/suggest.h"

#include <string.h>

const char *const chip_type_names[CHIP_TYPES + 1] = {
    [CHIP_BF16] = "bf16",           [CHIP_INT8] = "int8", [CHIP_FP8] = "fp8",
    [CHIP_FP8_BLOCK] = "fp8_block", [CHIP_FP4] = "fp4",   [CHIP_WEIGHT8] = "weight8",
    [CHIP_WEIGHT4] = "weight4"};
const double chip_type_bytes[CHIP_TYPES] = {
    [CHIP_BF16] = 2,     [CHIP_INT8] = 1,    [CHIP_FP8] = 1,         [CHIP_FP8_BLOCK] = 1,
    [CHIP_FP4] = 0.5625, [CHIP_WEIGHT8] = 1, [CHIP_WEIGHT4] = 0.5625};
/* 64 is what fits.def was made with. Kernels that widen weights take few rows at a time: with 8 those of an A100 (int4, 16 rows or
   fewer; TensorRT-LLM 1.0.0) are 16 % off in the median, with 64 29 %. */
const double chip_type_rows[CHIP_TYPES] = {
    [CHIP_BF16] = 64, [CHIP_INT8] = 64,   [CHIP_FP8] = 64,   [CHIP_FP8_BLOCK] = 64,
    [CHIP_FP4] = 64,  [CHIP_WEIGHT8] = 8, [CHIP_WEIGHT4] = 8};

/* The launch of an NVIDIA GPU: the shortest kernels of a recorded graph, 1.9 us (aiconfigurator-core 0.12.0,
   quantize/vllm/0.24.0: static_scaled_fp8_quant). TPUs run a step as one program: nothing is started on the way. */
#define AHEAD                                                                                      \
    (128 *                                                                                         \
     1048576.0) /* CMEM of a v4: arXiv 2304.01433; VMEM of v5e, v6e: jax-ml.github.io/scaling-book, TPUs */

/* Prices are of one kind of list: by the hour, on demand, in the United States, of Google Cloud where it rents the chip to everybody,
   else of AWS, else of Azure; a whole machine's, divided by its chips. */
static const Chip chips[] = {
    {"v4", .about = "TPU v4 (2 TensorCores)",
     .source = "cloud.google.com/tpu/docs/v4: 275 TFLOP/s bf16 or int8, 32 GiB, 1228 GB/s, 3D "
               "torus, 6 links of 50 GB/s",
     .bf16 = 275e12, .int8 = 275e12, .memory = 32 * 1073741824.0, .ahead = AHEAD,
     .bandwidth = 1.228e12, .clock = 1.05e9, .torus = 3, .domain = 4096, .link = 300e9,
     .latency = 1e-6, .net = 6.25e9, .net_latency = 50e-6, .price = 3.22,
     .priced = "Google Cloud, on demand, us-central2, 2024-04", .committed = 1.449,
     .commitment = "Google Cloud, three years, us-central2, 2024-04"},
    {"v5e", .about = "TPU v5e",
     .source = "cloud.google.com/tpu/docs/v5e: 197 TFLOP/s bf16, 394 int8, 16 GiB, 819 GB/s, 2D "
               "torus, 4 links, 1600 Gbit/s",
     .bf16 = 197e12, .int8 = 394e12, .memory = 16 * 1073741824.0, .ahead = AHEAD,
     .bandwidth = 0.819e12, .clock = 1.5e9, .torus = 2, .domain = 256, .link = 200e9,
     .latency = 1e-6, .net = 3.125e9, .net_latency = 50e-6, .price = 1.2,
     .priced = "Google Cloud, on demand, us-west4, 2024-04", .committed = 0.54,
     .commitment = "Google Cloud, three years, us-west4, 2024-04"},
    {"v5p", .about = "TPU v5p (2 TensorCores)",
     .source = "cloud.google.com/tpu/docs/v5p: 459 TFLOP/s bf16, 918 int8, 95 GiB, 2765 GB/s, 3D "
               "torus, 4800 Gbit/s",
     .bf16 = 459e12, .int8 = 918e12, .memory = 95 * 1073741824.0, .bandwidth = 2.765e12,
     .clock = 1.75e9, .torus = 3, .domain = 8960, .link = 600e9, .latency = 1e-6, .net = 6.25e9,
     .net_latency = 50e-6, .price = 4.2, .priced = "Google Cloud, on demand, us-east5, 2024-04",
     .committed = 1.89, .commitment = "Google Cloud, three years, us-east5, 2024-04"},
    {"v6e", .about = "TPU v6e (Trillium)",
     .source = "cloud.google.com/tpu/docs/v6e: 918 TFLOP/s bf16, 1836 int8, 32 GB, 1640 GB/s, 2D "
               "torus, 3584 Gbit/s",
     .bf16 = 918e12, .int8 = 1836e12, .memory = 32e9, .ahead = AHEAD, .bandwidth = 1.64e12,
     .clock = 1.75e9, .torus = 2, .domain = 256, .link = 448e9, .latency = 1e-6, .net = 12.5e9,
     .net_latency = 50e-6, .price = 2.7, .priced = "Google Cloud, on demand, us-east5, 2024-12",
     .committed = 1.22, .commitment = "Google Cloud, three years, us-east5, 2024-12"},
    {"tpu7x", .about = "TPU7x (Ironwood; 2 devices)",
     .source = "cloud.google.com/tpu/docs/tpu7x: 2307 TFLOP/s bf16, 4614 fp8, 192 GiB, 7380 GB/s, "
               "3D torus, 9600 Gbit/s",
     .bf16 = 2307e12, .fp8 = 4614e12, .int8 = 0, .memory = 192 * 1073741824.0, .bandwidth = 7.38e12,
     .clock = 1.75e9, .torus = 3, .domain = 9216, .link = 1200e9, .latency = 1e-6, .net = 12.5e9,
     .net_latency = 50e-6},
    {"a100_sxm_40", .about = "NVIDIA A100 SXM 40 GB",
     .source = "NVIDIA A100 datasheet: 312 TFLOP/s bf16, 624 int8, 1555 GB/s, NVLink 600 GB/s both "
               "ways; HDR InfiniBand",
     .bf16 = 312e12, .int8 = 624e12, .memory = 40e9, .bandwidth = 1.555e12, .clock = 1.41e9,
     .launch = 1.9e-6, .domain = 8, .link = 300e9, .latency = 2e-6, .net = 25e9,
     .net_latency = 5e-6, .price = 3.67, .priced = "Google Cloud a2-highgpu, on demand, 2024-04",
     .like = "a100_sxm"},
    {"a100_sxm", .about = "NVIDIA A100 SXM 80 GB",
     .source = "NVIDIA A100 datasheet: 312 TFLOP/s bf16, 624 int8, 2039 GB/s, NVLink 600 GB/s both "
               "ways; HDR InfiniBand",
     .bf16 = 312e12, .int8 = 624e12, .memory = 80e9, .bandwidth = 2.039e12, .clock = 1.41e9,
     .launch = 1.9e-6, .domain = 8, .link = 300e9, .latency = 2e-6, .net = 25e9,
     .net_latency = 5e-6, .price = 5.07, .priced = "Google Cloud a2-ultragpu, on demand, 2024-04"},
    {"h100_sxm", .about = "NVIDIA H100 SXM 80 GB",
     .source = "NVIDIA H100 datasheet: 989 TFLOP/s bf16, 1979 fp8 and int8 dense, 3.35 TB/s, "
               "NVLink 900 GB/s both ways; NDR",
     .bf16 = 989.4e12, .int8 = 1978.9e12, .fp8 = 1978.9e12, .memory = 80 * 1073741824.0,
     .bandwidth = 3.35e12, .clock = 1.83e9, .launch = 1.9e-6, .domain = 8, .link = 450e9,
     .latency = 2e-6, .net = 50e9, .net_latency = 5e-6, .price = 11.06,
     .priced = "Google Cloud a3-highgpu, on demand, 2024-10"},
    {"h200_sxm", .about = "NVIDIA H200 SXM 141 GB",
     .source = "NVIDIA H200 datasheet: as H100, 4.8 TB/s", .bf16 = 989.4e12, .int8 = 1978.9e12,
     .fp8 = 1978.9e12, .memory = 141e9, .bandwidth = 4.8e12, .clock = 1.83e9, .launch = 1.9e-6,
     .domain = 8, .link = 450e9, .latency = 2e-6, .net = 50e9, .net_latency = 5e-6, .price = 10.6,
     .priced = "AWS p5e, on demand, 2025-06"},
    {"b200_sxm", .about = "NVIDIA B200 SXM 180 GB",
     .source = "NVIDIA DGX B200 datasheet: 72 PFLOP/s fp8 and 144 fp4 with sparsity of 8, 1440 GB, "
               "64 TB/s, NVLink 1.8 TB/s both ways",
     .bf16 = 2250e12, .int8 = 4500e12, .fp8 = 4500e12, .fp4 = 9000e12, .memory = 180e9,
     .bandwidth = 8e12, .clock = 1.85e9, .launch = 1.9e-6, .domain = 8, .link = 900e9,
     .latency = 2e-6, .net = 50e9, .net_latency = 5e-6, .price = 14.24,
     .priced = "AWS p6-b200, on demand, 2025-06"},
    {"gb200", .about = "NVIDIA GB200 (one of its GPUs)",
     .source = "NVIDIA GB200 NVL72 datasheet: 720 PFLOP/s fp8 with sparsity of 72, 13.4 TB, 576 "
               "TB/s, NVLink 130 TB/s both ways",
     .bf16 = 2500e12, .int8 = 5000e12, .fp8 = 5000e12, .fp4 = 10000e12, .memory = 186e9,
     .bandwidth = 8e12, .clock = 1.9e9, .launch = 1.9e-6, .domain = 72, .link = 900e9,
     .latency = 2e-6, .net = 50e9, .net_latency = 5e-6},
    {"l40s", .about = "NVIDIA L40S 48 GB",
     .source = "NVIDIA L40S datasheet: 362 TFLOP/s bf16 and 733 fp8 dense, 864 GB/s, PCIe 4",
     .bf16 = 362e12, .int8 = 733e12, .fp8 = 733e12, .memory = 48e9, .bandwidth = 0.864e12,
     .clock = 2.52e9, .launch = 1.9e-6, .domain = 8, .link = 32e9, .latency = 5e-6, .net = 25e9,
     .net_latency = 5e-6, .price = 1.86, .priced = "AWS g6e.xlarge, on demand, 2024-08"},
    {"rtx4090", .about = "NVIDIA GeForce RTX 4090 24 GB",
     .source = "NVIDIA Ada whitepaper 2.02: 165 TFLOP/s bf16 with f32 sums, 661 int8, 330 fp8 with "
               "f32 sums, 1008 GB/s, PCIe 4",
     .bf16 = 165.2e12, .int8 = 660.6e12, .fp8 = 330.3e12, .memory = 24e9, .bandwidth = 1.008e12,
     .clock = 2.52e9, .launch = 1.9e-6, .domain = 1, .link = 32e9, .latency = 10e-6, .net = 12.5e9,
     .net_latency = 10e-6, .like = "l40s"},
    {"mi300x", .about = "AMD Instinct MI300X 192 GB",
     .source = "AMD MI300X datasheet: 1307 TFLOP/s bf16, 2615 int8 and fp8 dense, 5.3 TB/s, 7 "
               "links of 64 GB/s a direction",
     .bf16 = 1307.4e12, .int8 = 2614.9e12, .fp8 = 2614.9e12, .memory = 192e9, .bandwidth = 5.3e12,
     .clock = 2.1e9, .launch = 3e-6, .domain = 8, .link = 448e9, .latency = 3e-6, .net = 50e9,
     .net_latency = 5e-6, .price = 6, .priced = "Azure ND96isr_MI300X_v5, on demand, 2026-05",
     .like = "h100_sxm"},
};

/* ---- what was measured ---- */

#define US 1e-6

static const struct {
    const char *chip;
    ChipType type;
    ChipProduct product;
} products[] = {
#define FIT_PRODUCT(chip, type, start, compute, memory, sharp, act, ends)                          \
    {#chip, CHIP_##type, {(start)*US, compute, memory, sharp, act, ends}},
#define FIT_DECODE(...)
#define FIT_PREFILL(...)
#define FIT_ALL_REDUCE(...)
#include "sim/fits.def"
#undef FIT_PRODUCT
#undef FIT_DECODE
};

static const struct {
    const char *chip;
    ChipType type;
    double start, memory;
} decodes[] = {
#define FIT_PRODUCT(...)
#define FIT_DECODE(chip, type, start, memory) {#chip, CHIP_##type, (start)*US, memory},
#include "sim/fits.def"
#undef FIT_DECODE
#undef FIT_PREFILL
};

static const struct {
    const char *chip;
    double start, compute, extra;
} prefills[] = {
#define FIT_DECODE(...)
#define FIT_PREFILL(chip, start, compute, extra) {#chip, (start)*US, compute, extra},
#include "sim/fits.def"
#undef FIT_PREFILL
#undef FIT_ALL_REDUCE
};

static const struct {
    const char *chip;
    int devices;
    double us[CHIP_REDUCE_SIZES];
} reduces[] = {
#define FIT_PREFILL(...)
#define FIT_ALL_REDUCE(chip, devices, ...) {#chip, devices, {__VA_ARGS__}},
#include "sim/fits.def"
};

#define COUNT(table) (sizeof(table) / sizeof(table)[0])

/* Of chips of which single operations were not timed: TPUs. Products as a sweep of square ones on half a TPU7x (tpu-recipes@c8cfe2f6,
   microbenchmarks: 956 of 1153 TFLOP/s at 32768). Nothing is started within a program, whose memory is read ahead of what is
   computed: of the bandwidth they have the best that attention or products reach on any chip in fits.def, on average. Attention's
   compute is a guess. */
static const ChipFit unmeasured = {
    .product[CHIP_BF16] = {.compute = 0.83, .memory = 0.92, .sharp = 3},
    .decode_memory = {0.92, 0.92},
    .prefill_compute = 0.5,
    .prefill_extra = 512,
    .sustained = 1,
};

/* Large products of TPUs that were timed: v5e by XLA, 8192 x 8192 x 8192, 5.94 ms (docs.jax.dev, pallas/tpu/matmul, less the
   0.11 ms that a call takes there); v6e likewise, 1.51 ms in its trace (yangwhale/gpu-tpu-pedia, results_trace_test.csv). */
static const struct {
    const char *chip;
    double compute;
} tpu_products[] = {{"v5e", 0.94}, {"v6e", 0.79}};

/* What is left of fits.def's shares where PyTorch's products take milliseconds: those of 4096 tokens in Vidur's profiles, 0.70 of an
   H100's peak and 0.745 of an A100's. Other GPUs are taken to be like an H100. */
static const struct {
    const char *chip;
    double share;
} sustained[] = {{"a100_sxm", 0.745 / 0.896}, {"h100_sxm", 0.70 / 0.807}};

void chip_fit(const Chip *chip, ChipFit *fit)
{
    const char *name = chip->like ? chip->like : chip->name;
    *fit = unmeasured;
    for (size_t i = 0; i < COUNT(products); i++)
        if (strcmp(products[i].chip, name) == 0) {
            fit->product[products[i].type] = products[i].product;
            fit->measured = true;
            fit->sustained = sustained[1].share;
        }
    for (size_t i = 0; i < COUNT(sustained); i++)
        if (strcmp(sustained[i].chip, name) == 0)
            fit->sustained = sustained[i].share;
    for (size_t i = 0; i < COUNT(tpu_products); i++)
        if (strcmp(tpu_products[i].chip, name) == 0)
            fit->product[CHIP_BF16].compute = tpu_products[i].compute;
    for (size_t i = 0; i < COUNT(decodes); i++)
        if (strcmp(decodes[i].chip, name) == 0) {
            /* Keys in bf16 come first, and stand for those in 8 bits, too, that were not timed. */
            for (int narrow = decodes[i].type != CHIP_BF16; narrow < 2; narrow++) {
                fit->decode_start[narrow] = decodes[i].start;
                fit->decode_memory[narrow] = decodes[i].memory;
            }
        }
    for (size_t i = 0; i < COUNT(prefills); i++)
        if (strcmp(prefills[i].chip, name) == 0) {
            fit->prefill_start = prefills[i].start;
            fit->prefill_compute = prefills[i].compute;
            fit->prefill_extra = prefills[i].extra;
        }
    for (size_t i = 0; i < COUNT(reduces); i++)
        for (int s = 0; strcmp(reduces[i].chip, name) == 0 && s < CHIP_REDUCE_SIZES; s++)
            fit->reduce[reduces[i].devices / 4][s] = reduces[i].us[s] * US;
    for (int t = 0; t < CHIP_TYPES; t++) {
        ChipProduct *p = &fit->product[t];
        if (p->compute <= 0)
            *p = fit->product[CHIP_BF16];
        /* What was timed made the activations' numbers, too, which engines do where they write them: in a step of its own
           (cost.c), unless blocks have scales. */
        if (t != CHIP_BF16 && t != CHIP_FP8_BLOCK) {
            p->start = fit->product[CHIP_BF16].start;
            p->act = 0;
        }
    }
}

double chip_peak(const Chip *chip, ChipType type)
{
    const double peak[CHIP_TYPES] = {
        [CHIP_BF16] = chip->bf16,     [CHIP_INT8] = chip->int8, [CHIP_FP8] = chip->fp8,
        [CHIP_FP8_BLOCK] = chip->fp8, [CHIP_FP4] = chip->fp4,   [CHIP_WEIGHT8] = chip->bf16,
        [CHIP_WEIGHT4] = chip->bf16};
    return peak[type];
}

/* ---- names and files ---- */

size_t chips_count(void)
{
    return COUNT(chips);
}

const Chip *chip_at(size_t i)
{
    return &chips[i];
}

const Chip *chip_find(const char *name)
{
    for (size_t i = 0; i < COUNT(chips); i++)
        if (strcmp(chips[i].name, name) == 0)
            return &chips[i];
    return NULL;
}

/* The numbers of a chip in JSON. */
static const struct {
    const char *name;
    size_t offset;
} fields[] = {
#define FIELD(name)                                                                                \
    {                                                                                              \
#name, offsetof(Chip, name)                                                                \
    }
    FIELD(bf16),   FIELD(int8),        FIELD(fp8),       FIELD(fp4),
    FIELD(memory), FIELD(ahead),       FIELD(bandwidth), FIELD(clock),
    FIELD(launch), FIELD(domain),      FIELD(link),      FIELD(latency),
    FIELD(net),    FIELD(net_latency), FIELD(price),     FIELD(committed),
};

/* Its texts. */
static const struct {
    const char *name;
    size_t offset;
} texts[] = {FIELD(name),   FIELD(about),      FIELD(source),
             FIELD(priced), FIELD(commitment), FIELD(like)};

json_t *chip_json(const Chip *chip)
{
    json_t *o = json_object();
    for (size_t i = 0; i < COUNT(texts); i++) {
        const char *text = *(const char *const *)((const char *)chip + texts[i].offset);
        if (text)
            o = json_with(o, texts[i].name, json_string(text));
    }
    for (size_t i = 0; i < COUNT(fields); i++)
        o = json_with(o, fields[i].name,
                      json_real(*(const double *)((const char *)chip + fields[i].offset)));
    return json_with(o, "torus", json_integer(chip->torus));
}

static int read_field(const char *file, const char *key, json_t *value, Chip *chip, cvn_err *err)
{
    for (size_t i = 0; i < COUNT(texts); i++)
        if (strcmp(texts[i].name, key) == 0) {
            if (!json_is_string(value))
                return err_set(err, CVN_EFORMAT, "%s: \"%s\" must be a string", file, key);
            *(const char **)((char *)chip + texts[i].offset) = json_string_value(value);
            return CVN_OK;
        }
    double number = json_number_value(value);
    if (strcmp(key, "torus") == 0) {
        if (!json_is_integer(value) || number < 0 || number > CHIP_DIMS)
            return err_set(err, CVN_EFORMAT, "%s: \"torus\" must be 0, 1, 2 or 3", file);
        chip->torus = (int)number;
        return CVN_OK;
    }
    for (size_t i = 0; i < COUNT(fields); i++)
        if (strcmp(fields[i].name, key) == 0) {
            if (!json_is_number(value) || !(number >= 0 && number < 1e30))
                return err_set(err, CVN_EFORMAT, "%s: \"%s\" must be a number, 0 or larger", file,
                               key);
            *(double *)((char *)chip + fields[i].offset) = number;
            return CVN_OK;
        }
    return err_set(err, CVN_EFORMAT,
                   "%s: unknown field \"%s\"; `caravan chips --json` shows the fields of a chip",
                   file, key);
}

static const char *name_at(const void *list, size_t i)
{
    (void)list;
    return i < chips_count() ? chip_at(i)->name : NULL;
}

int chip_open(const char *name, Chip *chip, json_t **held, cvn_err *err)
{
    const Chip *known = chip_find(name);
    *held = NULL;
    if (known) {
        *chip = *known;
        return CVN_OK;
    }
    size_t n = strlen(name);
    if (n < 5 || strcmp(name + n - 5, ".json") != 0) {
        const char *near = suggest(name, name_at, NULL);
        return err_set(err, CVN_EINVAL,
                       "unknown chip \"%s\"%s%s%s `caravan chips` lists them, and a FILE.json "
                       "describes another",
                       name, near ? "; did you mean " : ":", near ? near : "", near ? "?" : "");
    }
    json_t *o = *held = json_object_read(name, err);
    if (!o)
        return err->code;
    const char *like = json_string_value(json_object_get(o, "like"));
    known = chip_find(like ? like : "");
    if (like && !known)
        return err_set(err, CVN_EFORMAT, "%s: unknown base chip \"%s\"", name, like);
    *chip = known ? *known : (Chip){"", .about = "", .domain = 1};
    chip->like = known && known->like ? known->like : like;
    const char *key;
    json_t *value;
    json_object_foreach(o, key,
                        value) if (strcmp(key, "like") != 0 &&
                                   read_field(name, key, value, chip, err)) return err->code;
    /* A price comes with where it is from: another chip's source is not this one's. */
    if (json_object_get(o, "price") && !json_object_get(o, "priced"))
        chip->priced = chip->price > 0 ? name : NULL;
    if (json_object_get(o, "committed") && !json_object_get(o, "commitment"))
        chip->commitment = chip->committed > 0 ? name : NULL;
    if (chip->bf16 <= 0 || chip->memory <= 0 || chip->bandwidth <= 0 || chip->domain < 1)
        return err_set(
            err, CVN_EFORMAT,
            "%s: a chip needs bf16, memory and bandwidth above 0, and a domain of at least 1",
            name);
    return CVN_OK;
}
