#!/usr/bin/env bash
# Ember beside its peers, on this machine: training, decoding, prefill, start-up; ours and theirs in turn, several times, in one go.
# Writes every measurement to bench/results/DATE-MACHINE-COMMIT.json and the table of ratios beside it as .md, and puts the table
# into docs/measured.md, and some of its rows into the README, where their marks are.
#   bench/run.sh [--quick] [--device cpu|cuda] [--rounds N] [--only WORD] [--no-docs]
# PYTHON has torch and transformers, LLAMA_PYTHON xllamacpp and gguf [default: python3]; what is missing is left out, and said.
# TRAIN and GENERATE name programs that are built already. WRAP is put before every measured command. About half an hour on two
# cores; --quick tries everything once in sizes that mean nothing, in a few minutes.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
if [ -z "${TRAIN:-}" ] || [ -z "${GENERATE:-}" ]; then
  features=()
  command -v nvidia-smi >/dev/null && features=(--features cuda)
  for program in ember-generate ember-train; do
    cargo build --release -q --manifest-path "$here/Cargo.toml" -p "$program" "${features[@]}"
  done
fi
exec python3 "$here/bench/run.py" "$@"
