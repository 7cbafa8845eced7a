#!/usr/bin/env bash
# tpu.sh [QUICK]: bench/device.sh of a TPU; CHIP says which (v5e), DEVICE the plugin (tpu).
exec "$(dirname "$0")/device.sh" "${DEVICE:-tpu}" "${CHIP:-v5e}" "$@"
