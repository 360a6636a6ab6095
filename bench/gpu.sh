#!/usr/bin/env bash
# Measures a machine with one NVIDIA GPU in under ten minutes, without Rust or a network: whether its numbers agree with the
# CPU's, how fast Ember trains and generates there compared with PyTorch, and nanoGPT's Shakespeare recipe to its end.
#   bench/gpu.sh ARCHIVE [TEXT]        (ARCHIVE: from bench/gpu_pack.sh; TEXT: tiny Shakespeare, if the archive has none)
#   bench/gpu.sh --here [TEXT]         the same with the programs named by TRAIN and GENERATE [default: target/release]
# OUT: a folder for everything measured, as JSON [default: gpu-results]. PYTHON: one that has torch [default: python3].
# MINUTES: time limit [default: 9.5]; a section that does not fit is cut short or left out, and the next one starts.
# Without a GPU it prints what it skips, and tries everything else on the CPU in sizes that mean nothing.
# Exits with 1 if a section has failed, such as the comparison with the CPU's numbers; one that is cut short has not.
set -uo pipefail
began=$(date +%s)
bench=$(cd "$(dirname "$0")" && pwd)
[ $# -ge 1 ] || { sed -n '2,10s/^# \{0,1\}//p' "$0" >&2; exit 2; }
export OUT PYTHON
OUT=$(realpath -m "${OUT:-gpu-results}")
PYTHON=${PYTHON:-python3}
until=$(awk -v began="$began" -v minutes="${MINUTES:-9.5}" 'BEGIN { print int(began + 60 * minutes) }')
# Results of an earlier call would be mistaken for this one's.
[ ! -e "$OUT/sections.jsonl" ] || { echo "$OUT has results already: move them, or name another folder by OUT" >&2; exit 2; }
mkdir -p "$OUT" || exit 1

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [ "$1" = --here ]; then
  export TRAIN=${TRAIN:-$bench/../target/release/ember-train} GENERATE=${GENERATE:-$bench/../target/release/ember-generate}
else
  # Not every machine has xz, but Python is needed anyway.
  python3 -c 'import sys, tarfile; tarfile.open(sys.argv[1]).extractall(sys.argv[2])' "$1" "$work" || exit 1
  export TRAIN=$work/ember/ember-train GENERATE=$work/ember/ember-generate
  bench=$work/ember/bench
  COMMIT=$(cat "$work/ember/commit")
  export COMMIT
fi
text=${2:-}
[ -n "$text" ] || [ ! -e "$work/ember/shakespeare.txt" ] || text=$work/ember/shakespeare.txt
[ -z "$text" ] || text=$(realpath "$text")

say() { echo "$*" >&2; }
skip() { say "-- skipped: $1: $2"; printf '{"section": "%s", "skipped": "%s"}\n' "$1" "$2" >>"$OUT/sections.jsonl"; }

failed=()
# section NAME SECONDS COMMAND...: runs it with a time limit and writes its output to OUT/NAME.out; a failure does not stop the script.
section() {
  local name=$1 limit=$2 left start code
  shift 2
  left=$((until - $(date +%s)))
  [ "$left" -ge 5 ] || { skip "$name" "no time is left"; return; }
  [ "$limit" -le "$left" ] || limit=$left
  say "== $name (at most $limit s; $((left / 60)) min $((left % 60)) s are left)"
  start=$(date +%s.%N)
  timeout -k 5 "$limit" "$@" >"$OUT/$name.out" 2>"$OUT/$name.err" </dev/null
  code=$?
  printf '{"section": "%s", "exit": %d, "seconds": %.2f}\n' "$name" "$code" "$(date +%s.%N | awk -v s="$start" '{print $1 - s}')" \
    >>"$OUT/sections.jsonl"
  case $code in
    0) ;;
    124 | 137) say "   cut at $limit s" ;;
    *)
      failed+=("$name")
      say "   failed with exit code $code: $(tail -n 1 "$OUT/$name.err")"
      ;;
  esac
}

# beside NAME SECONDS WORDS [ARGUMENTS]: the contests of bench/run.sh whose names have WORDS in them, once each.
beside() {
  local name=$1 limit=$2 words=$3
  shift 3
  section "$name" "$limit" env OUT="$OUT/$name" python3 "$bench/run.py" --device "$device" --rounds 1 --only "$words" --no-docs "$@"
}

section devices 60 "$TRAIN" devices --format json --quiet
works() { grep -q "\"id\":\"$1[^}]*\"gpu\":true,\"problem\":null" "$OUT/devices.out"; }
nvidia-smi >"$OUT/nvidia-smi.txt" 2>&1 || true
device=cpu
if works cuda; then device=cuda; else skip cuda "no CUDA device works here"; fi
torch=$("$PYTHON" -c 'import torch; print(torch.cuda.is_available())' 2>/dev/null)
case $device:$torch in
  *:) skip peers "$PYTHON has no torch" ;;
  cuda:False) skip peers "torch sees no CUDA device" ;;
esac

section "check-$device" 100 "$TRAIN" devices --check --device $device --format json
if [ $device = cuda ]; then
  beside training 200 "training, GPT-2"
  beside decoding-1 100 "decoding, GPT-2 124M, 1 at once, after 960"
  beside decoding-64 70 "decoding, GPT-2 124M, 64 at once, after 64"
  steps=()
else
  beside quick 240 "" --quick
  steps=(--set max_steps=200 --set batch_size=4 --set n_layer=2 --set n_embd=48 --set context_length=64 --set eval_interval=200)
fi
if [ -n "$text" ]; then
  section shakespeare 120 "$TRAIN" run "$text" --config shakespeare-char --device $device --out "$work/run" "${steps[@]}"
  cp "$work/run/metrics.jsonl" "$OUT/shakespeare.jsonl" 2>/dev/null
else
  skip shakespeare "no text was given"
fi
if works wgpu; then
  section check-wgpu 60 "$TRAIN" devices --check --device wgpu --format json
else
  skip check-wgpu "wgpu finds no GPU here"
fi
if [ $device = cuda ] && [ -n "$text" ] && [ "$torch" = True ]; then
  section shakespeare-peer 240 "$PYTHON" "$bench/peers/nanogpt_char.py" "$text" --recipe gpu --compile
  beside prefill 60 "prefill"
  beside start 60 "start to"
else
  skip shakespeare-peer "it takes a GPU, PyTorch and a text"
fi

python3 "$bench/gpu_table.py" "$OUT" | tee "$OUT/table.txt" || failed+=(table)
say "everything measured: $OUT ($((($(date +%s) - began) / 60)) min $((($(date +%s) - began) % 60)) s)"
[ ${#failed[@]} = 0 ] || { say "failed: ${failed[*]}"; exit 1; }
