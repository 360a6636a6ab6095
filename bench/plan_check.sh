#!/usr/bin/env bash
# Compares the predictions of `plan` with measurements: speed and memory of a few steps of each configuration. The time and the loss of
# whole runs: bench/promises.py.
#   bench/plan_check.sh TEXT [DEVICE...]      (default: cpu wgpu)
set -euo pipefail
[ $# -ge 1 ] || { sed -n '2,4s/^# \{0,1\}//p' "$0" >&2; exit 2; }
text=$(realpath "$1")
shift
devices=("${@:-cpu}")
[ $# -gt 0 ] || devices=(cpu wgpu)
here=$(cd "$(dirname "$0")/.." && pwd)
ember=${EMBER_TRAIN:-$here/target/release/ember-train}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
"$ember" prepare "$text" --out tokens --quiet >/dev/null

# n_layer n_embd context_length batch_size
cpu_shapes=("2 64 64 16" "3 96 128 16" "4 128 128 16" "4 192 128 32" "6 256 128 16" "6 384 256 8")
wgpu_shapes=("1 32 32 4" "2 32 32 8" "2 64 64 4" "2 64 64 8" "3 64 64 4")
printf '%-6s %-22s %11s %11s %7s %11s %11s %7s\n' device shape 'ms step' measured off 'peak MB' measured off
for device in "${devices[@]}"; do
  kind=${device%%:*}
  shapes=("${cpu_shapes[@]}")
  [ "$kind" = wgpu ] && shapes=("${wgpu_shapes[@]}")
  for shape in "${shapes[@]}"; do
    read -r n_layer n_embd context batch <<<"$shape"
    "$ember" plan tokens --device "$device" --minutes 1 --measure --out p.toml --format json --quiet \
      --set n_layer="$n_layer" --set n_embd="$n_embd" --set context_length="$context" --set batch_size="$batch" \
      ${EMBER_THREADS:+--threads "$EMBER_THREADS"} >row.json
    python3 - "$kind" "$shape" <<'PY'
import json, sys
row = json.load(open("row.json"))["measured"]
predicted, measured = row["predicted"]["peak_bytes"] / 1e6, row["measured"]["peak_bytes"] / 1e6
ms = 1e3 * row["predicted_step_s"], 1e3 * row["measured_step_s"]
layers, width, context, batch = sys.argv[2].split()
shape = f"{layers} x {width}, {batch} x {context}"
print(f"{sys.argv[1]:<6} {shape:<22} {ms[0]:>11.1f} {ms[1]:>11.1f} {ms[1] / ms[0] - 1:>+7.0%} {predicted:>11.1f} {measured:>11.1f} {measured / predicted - 1:>+7.1%}")
PY
  done
done
