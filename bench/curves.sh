#!/usr/bin/env bash
# Shows whether a change to the program changed training: two builds train the same recipe, and their losses are compared.
#   bench/curves.sh OLD_BINARY NEW_BINARY TEXT [FLAGS OF ember-train run]
# Prints the largest and the mean difference of train_loss over each 100 steps, and draws both in bench/results. Without flags:
# 500 steps of nanoGPT's CPU recipe on the CPU.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
[ $# -ge 3 ] || { sed -n '2,6s/^# \{0,1\}//p' "$0" >&2; exit 2; }
old=$(realpath "$1") new=$(realpath "$2") text=$(realpath "$3")
shift 3
flags=("$@")
[ $# -gt 0 ] || flags=(--config shakespeare-char-cpu --device cpu --set max_steps=500 --set lr_decay_steps=500)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
looks=()
for key in eval_interval checkpoint_interval; do looks+=(--set "$key=1000000"); done
looks+=(--set sample_interval=0 --set log_interval=1 --set eval_tokens=256)
# The text is prepared only once; the two runs follow one another.
"$new" prepare "$text" --out "$work/data" --tokenizer auto --quiet >/dev/null
for build in old new; do
  "${!build}" run "$work/data" --out "$work/$build" "${flags[@]}" "${looks[@]}" --quiet >"$work/$build.log" 2>&1 ||
    { cat "$work/$build.log" >&2; exit 1; }
done
exec python3 "$here/bench/curves.py" "$work/old/metrics.jsonl" "$work/new/metrics.jsonl"
