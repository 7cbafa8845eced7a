/*
 * Chips as data: what a maker prints of each, and how much of that single operations have been measured to reach.
 *
 *     h100_sxm   989 TFLOP/s bf16, 1979 fp8, 80 GB at 3.35 TB/s, NVLink 450 GB/s among 8, InfiniBand 50 GB/s beyond
 *     v5p        459 TFLOP/s bf16, 918 int8, 95 GB at 2.77 TB/s, a torus of 3 dimensions, 100 GB/s in all a direction
 *
 * Peaks are of dense numbers: those that are printed with sparsity are twice as large. A chip is what its maker sells as one: a v4
 * or v5p has two TensorCores, a TPU7x two devices. How much of a peak is reached (ChipFit) is fitted to timings of single
 * operations where there are some (fits.def, made by tools/fit_chips.py); elsewhere it is that of a chip that is said.
 */
#ifndef CVN_SIM_CHIP_H
#define CVN_SIM_CHIP_H

#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* What numbers a product is of. Some exist here only. */
typedef enum ChipType {
    CHIP_BF16,
    CHIP_INT8,      /* both operands */
    CHIP_FP8,       /* scales per tensor or per row */
    CHIP_FP8_BLOCK, /* fp8 with a scale per 128 x 128 weights */
    CHIP_FP4,       /* NVFP4: with a scale per 16 weights */
    CHIP_WEIGHT8,   /* weights in 8 bits, widened to bf16 where they are multiplied */
    CHIP_WEIGHT4,   /* weights in 4 bits with a scale per 32, likewise */
    CHIP_TYPES
} ChipType;

extern const char *const chip_type_names[CHIP_TYPES + 1]; /* then NULL */
/* The bytes of a weight of each type, its scales included. */
extern const double chip_type_bytes[CHIP_TYPES];
/* Rows of a product that are computed together, so that fewer take as long. */
extern const double chip_type_rows[CHIP_TYPES];

/* How products of one type use the chip. */
typedef struct ChipProduct {
    double start;   /* seconds that every product takes */
    double compute; /* share of the peak */
    double memory;  /* share of the bandwidth */
    double sharp;   /* how well computing and reading overlap: 1 not at all, large: wholly */
    /* Activations' elements are quantized on the way: bytes per element, at full bandwidth. */
    double act;
    double ends; /* elements of k that filling and draining cost */
} ChipProduct;

enum { CHIP_REDUCE_SIZES = 8, CHIP_REDUCE_GROUPS = 3, CHIP_DIMS = 3 };

typedef struct ChipFit {
    ChipProduct product[CHIP_TYPES]; /* compute 0: as that of bf16 */
    double decode_start[2],
        decode_memory[2]; /* attention of one token: 0 with keys in bf16, 1 in 8 bits */
    double prefill_start, prefill_compute, prefill_extra; /* of many; `extra` keys more per row */
    /* Seconds that a sum among 2, 4, 8 devices takes, of 8 KiB, 32 KiB … 128 MiB; 0: it was not measured. */
    double reduce[CHIP_REDUCE_GROUPS][CHIP_REDUCE_SIZES];
    /* Share of those of products that is left where they go on for long: power, heat. */
    double sustained;
    bool measured; /* on this chip */
} ChipFit;

typedef struct Chip {
    const char *name, *about;
    const char *source;          /* of what is printed */
    double bf16, int8, fp8, fp4; /* operations a second, dense; 0: it has none */
    double memory;               /* bytes */
    double ahead;                /* bytes that programs read of it before they need them; 0: none */
    double bandwidth;            /* bytes a second */
    double clock;                /* hertz */
    /* Seconds that starting a program costs at least, as an operation in a recorded one. */
    double launch;
    int torus; /* dimensions of the links within a pod; 0: all within a domain are one switch apart */
    double domain;  /* chips that the fast links reach */
    double link;    /* bytes a second that a chip sends over all its fast links together */
    double latency; /* seconds from one to the next */
    double net;     /* bytes a second and chip beyond the domain */
    double net_latency;
    double price;       /* dollars per chip and hour, on demand; 0: no large cloud lists it */
    const char *priced; /* whose list says so, where and when; NULL without a price */
    double committed;   /* likewise, for three years; 0: not known */
    const char *commitment;
    const char *like; /* the chip whose fit it has, when it has none of its own */
} Chip;

size_t chips_count(void);
const Chip *chip_at(size_t i);
/* The chip of a name; NULL where there is none. */
const Chip *chip_find(const char *name);
/* By name or FILE.json, an object of the fields above (`name` and `about` too); `like` gives what is left out. The strings
   stay with *held, to be released with json_decref. */
int chip_open(const char *name, Chip *chip, json_t **held, cvn_err *err);

void chip_fit(const Chip *chip, ChipFit *fit);
double chip_peak(const Chip *chip, ChipType type); /* 0: the chip has no such numbers */

/* A chip as JSON, with the fields of a file. */
json_t *chip_json(const Chip *chip);

#endif
