#!/usr/bin/env bash
# Measures how costs grow: time and memory of a training step by context, batch, width and vocabulary; time of a generated token by
# text length and batch. Writes bench/results/DATE-MACHINE-COMMIT-growth.json and .svg and prints the fitted exponents.
#   bench/growth.sh [--quick] [--device cpu|cuda]
# TRAIN, GENERATE and WRAP as for bench/run.sh. About ten minutes on two cores.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
if [ -z "${TRAIN:-}" ] || [ -z "${GENERATE:-}" ]; then
  features=()
  command -v nvidia-smi >/dev/null && features=(--features cuda)
  for program in ember-generate ember-train; do
    cargo build --release --locked -q --manifest-path "$here/Cargo.toml" -p "$program" "${features[@]}"
  done
  built=$(realpath "${CARGO_TARGET_DIR:-$here/target}")/release
  export TRAIN=${TRAIN:-$built/ember-train} GENERATE=${GENERATE:-$built/ember-generate}
fi
exec python3 "$here/bench/growth.py" "$@"
