/*
 * Runs a fuzz target without a fuzzer: replay FOLDER feeds it every file of the folder (its seeds),
 * each one whole, cut at up to 64 places, and with bytes changed at random in 256 ways. The changes
 * are the same in every run, so that what fails once fails again.
 */
#include <dirent.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { CUTS = 64, CHANGES = 256 };

/* xorshift64*: enough to choose bytes with. */
static uint64_t next_random(uint64_t *state)
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * UINT64_C(2685821657736338717);
}

/* Feeds a copy of exactly n bytes, so that a read past the end meets the sanitizer's red zone. */
static void feed(const uint8_t *data, size_t n)
{
    uint8_t *copy = malloc(n);
    if (!copy && n)
        abort();
    if (n)
        memcpy(copy, data, n);
    LLVMFuzzerTestOneInput(copy, n);
    free(copy);
}

static void replay(uint8_t *data, size_t n)
{
    feed(data, n);
    for (size_t i = 0; i < CUTS && i < n; i++)
        feed(data, n <= CUTS ? i : n * i / CUTS);
    uint64_t state = UINT64_C(0x9e3779b97f4a7c15);
    for (int i = 0; n && i < CHANGES; i++) {
        size_t at[4];
        uint8_t old[4];
        for (int k = 0; k < 4; k++) {
            at[k] = (size_t)(next_random(&state) % n);
            old[k] = data[at[k]];
        }
        for (int k = 0; k <= i % 4; k++)
            data[at[k]] = (uint8_t)(next_random(&state) >> 32);
        feed(data, n);
        for (int k = 3; k >= 0; k--)
            data[at[k]] = old[k];
    }
}

/* Reads a whole file; NULL when it cannot. The caller frees. */
static uint8_t *read_file(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    if (!file)
        return NULL;
    uint8_t *data = NULL;
    long end = fseek(file, 0, SEEK_END) == 0 ? ftell(file) : -1;
    if (end >= 0 && fseek(file, 0, SEEK_SET) == 0) {
        *size = (size_t)end;
        data = malloc(*size + 1);
        if (data && fread(data, 1, *size, file) != *size) {
            free(data);
            data = NULL;
        }
    }
    fclose(file);
    return data;
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
        return 2;
    }
    struct dirent **entry = NULL;
    int n = scandir(argv[1], &entry, NULL, alphasort);
    int fed = 0, failed = 0;
    for (int i = 0; i < n; i++) {
        char path[4096];
        int length = snprintf(path, sizeof path, "%s/%s", argv[1], entry[i]->d_name);
        bool hidden = entry[i]->d_name[0] == '.';
        free(entry[i]);
        if (hidden || length >= (int)sizeof path)
            continue;
        size_t size = 0;
        uint8_t *data = read_file(path, &size);
        if (!data) {
            fprintf(stderr, "cannot read %s\n", path);
            failed = 1;
            continue;
        }
        replay(data, size);
        free(data);
        fed++;
    }
    free(entry);
    uint8_t nothing = 0;
    feed(&nothing, 0);
    printf("%d seeds fed\n", fed);
    return failed;
}
