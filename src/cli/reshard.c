/* caravan reshard: a checkpoint from one mesh to another. */
#include "cli/common.h"
#include "cli/run_model.h"
#include "cli/terminal.h"

#include <inttypes.h>
#include <stdio.h>

enum { STEP, MESH, LAYOUT };

static const Option *const options[] = {
    [STEP] = SHARED(STEP),
    OPTION(MESH, "mesh", .kind = ARG_TEXT, .value = "MESH",
           .help = "target mesh, data=2,model=2; none: one device"),
    [LAYOUT] = SHARED(LAYOUT),
    NULL,
};

static int run(const Args *args, cvn_err *err)
{
    SCOPED(checkpoint_close) Checkpoint checkpoint = {0};
    SCOPED(strbuf_free) StrBuf word = {0};
    const char *from = args->operand[0], *to = args->operand[1];
    const char *mesh = args->value[MESH].text ? args->value[MESH].text : "";
    TRY(find_checkpoint(&checkpoint, from, &args->value[STEP], err));
    const char *layout = layout_said(mesh, &args->value[LAYOUT], true);
    TRY(checkpoint_reshard(&checkpoint, to, mesh, layout, run_interrupt_once(false), err));
    strbuf_word(&word, to);
    printf("%s: step %" PRId64 " of %s, for %s%s%s; resume with: caravan train --resume %s\n", to,
           checkpoint.manifest.step, from, *mesh ? mesh : "one device", *mesh ? " as " : "",
           *mesh ? layout : "", word.text ? word.text : to);
    return EXIT_OK;
}

const Command command_reshard = {
    "reshard",
    .about = "rewrite a checkpoint for another mesh",
    .usage = "RUN OUT [--mesh MESH] [--layout LAYOUT]",
    .examples = "reshard RUN OUT --mesh data=4,model=2\tthe newest checkpoint, for 8 devices\n"
                "reshard RUN OUT\tfor one device: a Hugging Face folder\n"
                "reshard RUN/checkpoints/step-00002000 OUT --mesh data=8 --layout fsdp\tthe same, "
                "by its folder\n",
    .notes = "Rarely needed: train --resume and export read checkpoints of any mesh. Tensors are "
             "rewritten one at a time, in the memory of the largest. OUT must be new or empty; "
             "train --resume continues it as a run.",
    .operands = "RUN and OUT",
    .min_operands = 2,
    .max_operands = 2,
    .options = options,
    .run = run,
};
