#!/bin/sh
# The same training step by Caravan and by PyTorch, one after the other on this machine, and the ratio.
#
#     bench/train_compare.sh CARAVAN PYTHON [preset] [seq] [batch] [options of torch_train.py …]
set -eu
caravan=$1 python=$2 preset=${3:-stories110m} seq=${4:-1024} batch=${5:-2}
shift $(($# < 5 ? $# : 5))
ours=$("$caravan" bench --train --preset "$preset" --seq "$seq" --batch "$batch" --json)
theirs=$("$python" "$(dirname "$0")/torch_train.py" --preset "$preset" --seq "$seq" --batch "$batch" "$@")
printf '%s\n%s\n' "$ours" "$theirs" | "$python" -c '
import json, sys
ours, theirs = (json.loads(line) for line in sys.stdin)
a, b = ours["train"], theirs["train"]
print("caravan     %9.1f tokens/s  %7.3f s/step  MFU %.1f%%"
      % (a["tokens_per_second"], a["seconds_per_step"], 100 * a["mfu"]))
print("torch %-6s%8.1f tokens/s  %7.3f s/step  MFU %.1f%%"
      % (theirs["torch"].split("+")[0], b["tokens_per_second"], b["seconds_per_step"],
         100 * a["flops"] / b["seconds_per_step"] / a["matmul_peak"]))
print("ratio       %9.2f" % (a["tokens_per_second"] / b["tokens_per_second"]))'
