#!/usr/bin/env bash
# Trains the small models from whose losses `ember-train plan` predicts (three hours on two cores in all),
# and prints study/src/plan/points.json. Each run uses the defaults of `ember-train run`; only its shape and length are set.
#   bench/fit_points.sh SHAKESPEARE TEXTS [WORK_FOLDER] >study/src/plan/points.json
# SHAKESPEARE is karpathy/char-rnn's tinyshakespeare.txt; TEXTS the folder that bench/texts.sh makes. Runs that
# are already in WORK_FOLDER are not trained again, and an interrupted one is resumed.
set -euo pipefail
[ $# -ge 2 ] || { sed -n '2,6s/^# \{0,1\}//p' "$0" >&2; exit 2; }
shakespeare=$(realpath "$1")
texts=$(realpath "$2")
work=$(realpath -m "${3:-$(mktemp -d)}")
here=$(cd "$(dirname "$0")/.." && pwd)
train=${EMBER_TRAIN:-$here/target/release/ember-train}
mkdir -p "$work"
cd "$work"

prepare() { # name, then the arguments of `prepare`
  [ -f "$1/manifest.json" ] || "$train" prepare --quiet --out "$@" >/dev/null
}
head -c 110000 "$shakespeare" >short.txt
prepare "tiny-shakespeare-chars" "$shakespeare" --tokenizer chars
prepare "tiny-shakespeare-tenth" short.txt --tokenizer bpe:512
head -c 60000 "$shakespeare" >shorter.txt
prepare "tiny-shakespeare-60k" shorter.txt --tokenizer bpe:512
prepare "tiny-shakespeare-bpe1024" "$shakespeare" --tokenizer bpe:1024
prepare "moby-dick-chars" "$texts/moby.txt" --tokenizer chars
prepare "moby-dick-bpe1024" "$texts/moby.txt" --tokenizer bpe:1024
prepare "russian-bpe4096" "$texts/ru.txt" --tokenizer bpe:4096
prepare "russian-chars" "$texts/ru.txt" --tokenizer chars
prepare "python-bpe4096" "$texts/code.txt" --tokenizer bpe:4096
prepare "c-bpe8192" "$texts/c.txt" --tokenizer bpe:8192
prepare "stories" --stories 20000

is_finished() { # run, max_steps
  [ -f "$1/latest" ] && [ "$(cat "$1/latest")" = "$(printf 'step-%08d' "$2")" ]
}
# The text, then: n_layer n_embd context_length batch_size max_steps
while read -r text n_layer n_embd context batch steps; do
  out="run-$text-$n_layer-$n_embd-$context-$batch-$steps"
  if is_finished "$out" "$steps"; then continue; fi
  if [ -f "$out/latest" ]; then
    "$train" resume "$out" --quiet --device cpu </dev/null
    continue
  fi
  rm -rf "$out"
  "$train" run "$text" --quiet --device cpu --out "$out" \
    --set n_layer="$n_layer" --set n_embd="$n_embd" --set context_length="$context" --set batch_size="$batch" \
    --set max_steps="$steps" --set eval_interval=$((steps / 20)) --set checkpoint_interval="$steps" \
    --set eval_tokens=30000 --set sample_interval=0 --set sample_tokens=1
done <<'RUNS'
tiny-shakespeare-bpe1024 2  64  64 16  150
tiny-shakespeare-bpe1024 2  64  64 16  600
tiny-shakespeare-bpe1024 2 128  64 16  100
tiny-shakespeare-bpe1024 2 128  64 16  400
tiny-shakespeare-bpe1024 3 128  64 16  900
tiny-shakespeare-bpe1024 4 128  64 32  300
tiny-shakespeare-bpe1024 4 192 128 16  200
tiny-shakespeare-bpe1024 2  64  64 64  150
tiny-shakespeare-chars   2  64  64 16  400
tiny-shakespeare-chars   3 128  64 16  300
tiny-shakespeare-chars   2 128  64 16 1000
tiny-shakespeare-60k     2  64  64 16  100
tiny-shakespeare-60k     2  64  64 16  400
tiny-shakespeare-60k     2 128  64 16  600
tiny-shakespeare-60k     3 128  64 16  200
moby-dick-bpe1024        2  64  64 16  300
moby-dick-bpe1024        2 128  64 16  600
moby-dick-bpe1024        3 128 128 16  150
moby-dick-bpe1024        4 128  64 16  300
moby-dick-chars          2  96  64 16  500
moby-dick-chars          3 128  64 16  200
stories                  2  64  96 16  300
stories                  4 128  96  8  400
stories                  2 128  96 16  150
tiny-shakespeare-bpe1024 2  64  64 16 2000
tiny-shakespeare-bpe1024 4 192 128  8 1000
tiny-shakespeare-tenth   2 128  64 16  300
tiny-shakespeare-tenth   3 128  64 16  800
russian-bpe4096          2 128  64 16  300
russian-bpe4096          3 128  64 16  800
russian-bpe4096          4 192 128 16  400
russian-chars            3 128  64 16  400
python-bpe4096           2 128  64 16  300
python-bpe4096           3 128  64 16  800
python-bpe4096           4 192 128 16  400
russian-bpe4096          4 192 128 16 1650
python-bpe4096           4 192 128 16 1650
python-bpe4096           2  96  64 64 2760
tiny-shakespeare-bpe1024 3 128  64 64 1000
tiny-shakespeare-bpe1024 4 128  64 64 2315
tiny-shakespeare-bpe1024 4 192 128 64  500
tiny-shakespeare-bpe1024 4 128  64 32 5638
moby-dick-bpe1024        4 128  64 32 4050
moby-dick-bpe1024        4 128  64 16 6790
moby-dick-bpe1024        2 128  64 16 1400
python-bpe4096           4 128  64 16 2322
python-bpe4096           2  96  64 16 1226
russian-bpe4096          2  96  64 16 1097
c-bpe8192                2  64  64 16  812
c-bpe8192                4 128  64 16 2198
c-bpe8192                4 192 128  8 6224
python-bpe4096           4 192 128  8 5661
RUNS

for text in */manifest.json; do
  text=${text%/manifest.json}
  [ -f "$text.facts.json" ] && continue
  "$train" plan "$text" --facts --format json --quiet >part
  mv part "$text.facts.json"
done
python3 - "$here" <<'PY'
import glob, json, sys, tomllib
points = []
for name in sorted(glob.glob("run-*/config.toml")):
    folder = name.removesuffix("/config.toml")
    config = tomllib.load(open(name, "rb"))
    text = config["text"][0].rsplit("/", 1)[-1]
    facts = json.load(open(f"{text}.facts.json"))
    rows = [json.loads(line) for line in open(f"{folder}/metrics.jsonl")]
    loss = min(row["val_loss"] for row in rows if row.get("val_loss") is not None)
    keys = ["n_layer", "n_embd", "context_length", "batch_size", "max_steps", "dropout"]
    points.append({"text": text, **facts, **{key: config[key] for key in keys}, "val_loss": round(loss, 4), "from": "bench/fit_points.sh"})
print("[\n" + ",\n".join("  " + json.dumps(point) for point in points) + "\n]")
PY
