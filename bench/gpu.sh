#!/usr/bin/env bash
# gpu.sh [QUICK]: bench/device.sh of a GPU of NVIDIA; CHIP says which (h100_sxm), DEVICE the plugin (cuda).
exec "$(dirname "$0")/device.sh" "${DEVICE:-cuda}" "${CHIP:-h100_sxm}" "$@"
