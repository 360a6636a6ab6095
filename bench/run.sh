#!/usr/bin/env bash
# Compares Ember with its peers on this machine: training, decoding, prefill, start-up; ours and theirs in turn, several times.
# Writes every measurement to bench/results/DATE-MACHINE-COMMIT.json and the table of ratios beside it as .md, and inserts the table
# into docs/measured.md and some of its rows into the README, between their markers, if it is whole: not stopped (exit code 1), without
# a failure of Ember (1), and without other load on the machine.
#   bench/run.sh [--quick] [--device cpu|cuda] [--rounds N] [--only WORD] [--no-docs]
# PYTHON has torch and transformers, LLAMA_PYTHON xllamacpp and gguf [default: python3]; missing ones are skipped with a note.
# TRAIN and GENERATE name existing programs. WRAP is put before every measured command. About half an hour on two
# cores; --quick tries everything once in sizes that mean nothing, in a few minutes.
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
exec python3 "$here/bench/run.py" "$@"
