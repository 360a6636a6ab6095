#!/usr/bin/env bash
# Runs nanoGPT's CPU recipe on one text, ours and PyTorch's in turn, on this machine: losses by the same evaluation, and times.
#   bench/shakespeare_cpu.sh TEXT [PYTHON]      (PYTHON: one that has torch; default python3)
set -euo pipefail
[ $# -ge 1 ] || { sed -n '2,3s/^# \{0,1\}//p' "$0" >&2; exit 2; }
text=$(realpath "$1")
python=${2:-python3}
here=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cargo build --release --locked -q --manifest-path "$here/Cargo.toml" -p ember-train
began=$(date +%s.%N)
"${CARGO_TARGET_DIR:-$here/target}/release/ember-train" run "$text" --config shakespeare-char-cpu --device cpu --out "$work/run" >"$work/ours.log" 2>&1 ||
  { cat "$work/ours.log" >&2; exit 1; }
ended=$(date +%s.%N)
"$python" "$here/bench/peers/nanogpt_char.py" "$text" --recipe cpu >"$work/theirs.json"
"$python" - "$work" "$began" "$ended" <<'PY'
import json, os, sys
work, began, ended = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])
rows = [json.loads(line) for line in open(f"{work}/run/metrics.jsonl")]
val = [r["val_loss"] for r in rows if "val_loss" in r]
steps = [r for r in rows if "train_loss" in r]
rates = sorted(r["tokens_per_s"] for r in steps)
step_ms = 1000 * 64 * 12 / rates[len(rates) // 2]
peer = json.loads([line for line in open(f"{work}/theirs.json") if line.startswith("{")][-1])
peer_ms = peer.get("median_step_ms") or peer["mean_step_ms"]
print(f"nanoGPT's CPU recipe, 2,000 steps, {os.cpu_count()} cores")
print(f"{'':24}{'ember':>10}{'PyTorch':>10}")
print(f"{'validation loss, last':24}{val[-1]:>10.4f}{peer['val_loss']:>10.4f}")
print(f"{'validation loss, best':24}{min(val):>10.4f}{peer.get('best_val_loss', peer['val_loss']):>10.4f}")
print(f"{'ms a step, median':24}{step_ms:>10.2f}{peer_ms:>10.2f}   ratio {peer_ms / step_ms:.2f}")
print(f"{'s of training':24}{step_ms * 2:>10.1f}{peer['training_s']:>10.1f}")
print(f"{'s of the whole program':24}{ended - began:>10.1f}")
PY
