#!/usr/bin/env bash
# Compares the training engine's options on one text, on this machine: nanoGPT's CPU recipe in float32 and in bfloat16, with
# activation checkpointing, with Muon, as a Llama of as many parameters, with a moving average; the same tokens for each.
# Prints the table of docs/measured.md: validation loss, tokens per second, peak memory of a training step. About nine minutes.
#   bench/engine.sh TEXT [STEPS] [FLAGS OF ember-train run]        (STEPS: default 2000)
set -euo pipefail
[ $# -ge 1 ] || { sed -n '2,5s/^# \{0,1\}//p' "$0" >&2; exit 2; }
text=$(realpath "$1")
steps=${2:-2000}
shift; [ $# -gt 0 ] && shift
here=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cargo build --release --locked -q --manifest-path "$here/Cargo.toml" -p ember-train
train=${CARGO_TARGET_DIR:-$here/target}/release/ember-train

run() { # NAME CONFIG [KEY=VALUE...]
  local name=$1 config=$2 sets=()
  shift 2
  for pair in "$@"; do sets+=(--set "$pair"); done
  "$train" run "$text" --config "$config" --device cpu --out "$work/$name" --set max_steps="$steps" \
    --set lr_decay_steps="$steps" --set sample_interval=0 "${sets[@]}" "${flags[@]}" >"$work/$name.log" 2>&1 ||
    { cat "$work/$name.log" >&2; exit 1; }
  "$train" ledger --config "$config" --device cpu --repeats 1 --format json "${sets[@]}" >"$work/$name.ledger" 2>"$work/$name.log" ||
    { cat "$work/$name.log" >&2; exit 1; }
}
flags=("$@")
run float32 shakespeare-char-cpu
run bfloat16 shakespeare-char-cpu precision=bf16
run checkpointing shakespeare-char-cpu activation_checkpointing=true
run muon shakespeare-char-cpu optimizer=muon muon_learning_rate=0.02 muon_momentum=0.95
run llama shakespeare-char-llama-cpu
run llama-muon shakespeare-char-llama-cpu optimizer=muon muon_learning_rate=0.02 muon_momentum=0.95
run ema shakespeare-char-cpu ema_decay=0.99

python3 - "$work" "$steps" float32 bfloat16 checkpointing muon llama llama-muon ema <<'PY'
import json, os, sys
work, steps, names = sys.argv[1], sys.argv[2], sys.argv[3:]
print(f"{steps} steps of nanoGPT's CPU recipe, {os.cpu_count()} cores")
print(f"{'':16}{'validation':>12}{'best':>9}{'tokens/s':>11}{'ms a step':>11}{'peak MB':>9}")
for name in names:
    rows = [json.loads(line) for line in open(f"{work}/{name}/metrics.jsonl")]
    key = "ema_val_loss" if name == "ema" else "val_loss"
    losses = [row[key] for row in rows if row.get(key) is not None]
    rates = sorted(row["tokens_per_s"] for row in rows if row.get("tokens_per_s"))
    rate = rates[len(rates) // 2]
    entries = [json.loads(line) for line in open(f"{work}/{name}.ledger")]
    step = next((e for e in entries if e.get("mode") == "training_step"), {})
    peak = (step.get("measured") or step.get("measured_bytes") or {}).get("peak_bytes", float("nan"))
    print(f"{name:16}{losses[-1]:>12.4f}{min(losses):>9.4f}{rate:>11.0f}{768000 / rate:>11.2f}{peak / 1e6:>9.1f}")
PY
