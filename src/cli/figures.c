#include "cli/figures.h"
#include "base/json_file.h"

#include "base/bytes.h"
#include "cli/common.h"
#include "cpu/registry.h"

#include <inttypes.h>
#include <string.h>

static void print_row(FILE *file, const char *kind, const char *axes, const CommRow *row)
{
    fprintf(file, "  %-18s %-16s %6" PRId64 "  %12s %11.3f ms %11.3f ms\n", kind, axes, row->count,
            bytes_text(row->bytes).text, 1e3 * row->seconds, 1e3 * row->exposed);
}

void print_communication(FILE *file, const char *title, const CommTable *table)
{
    if (table->n == 0)
        return;
    CommRow sum = comm_table_sum(table);
    fprintf(file, "%s\n  %-18s %-16s %6s  %12s %14s %14s\n", title, "collective", "axis", "count",
            "bytes sent", "in flight", "exposed");
    for (int i = 0; i < table->n; i++)
        print_row(file, op_info[table->row[i].kind].name, table->row[i].axes, &table->row[i]);
    print_row(file, "together", "", &sum);
}

json_t *add_communication(json_t *list, const char *part, const CommTable *table)
{
    for (int i = 0; i < table->n; i++) {
        const CommRow *row = &table->row[i];
        json_t *object =
            json_pack("{s:s,s:s,s:I,s:f,s:f,s:f}", "collective", op_info[row->kind].name, "axis",
                      row->axes, "count", (json_int_t)row->count, "bytes", row->bytes, "seconds",
                      row->seconds, "exposed_seconds", row->exposed);
        if (part)
            object = json_with(object, "part", json_string(part));
        list = json_append(list, object);
    }
    return list;
}

json_t *device_memory_json(const DeviceMemory *m)
{
    return json_pack("{s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:f}", "weights", m->weights,
                     "rounded_weights", m->rounded_weights, "optimizer", m->optimizer,
                     "gradient_sums", m->sums, "kv_cache", m->kv_cache, "inputs", m->inputs,
                     "temporaries", m->temporaries, "constants", m->constants, "total", m->total);
}

const char *kernels_name(const char *device)
{
    return device && strcmp(device, "cpu") != 0 ? device : cpu_kernels()->name;
}
