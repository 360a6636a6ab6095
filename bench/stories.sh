#!/usr/bin/env bash
# Runs `cargo train` with its defaults, on the built-in stories: how far it gets from the forgetful predictor's loss to the entropy
# floor, in what time, and how many of 200 stories sampled from it (temperature 1) are consistent throughout.
#   bench/stories.sh [FLAGS OF ember-train run]
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$here"
cargo build --release --locked -q -p ember-generate
cargo build --release --locked -q -p ember-train
cargo build --release --locked -q -p ember-data --example parse_stories
built=${CARGO_TARGET_DIR:-target}/release
began=$(date +%s)
"$built/ember-train" run --device cpu --out "$work/run" "$@" 2>&1 | { grep -vE 'sample|^ ' || true; }
echo "$(($(date +%s) - began)) s for the whole program"
"$built/ember-generate" text --from "$work/run" --device cpu --quiet --seed 1 --temperature 1 --max-new-tokens 120 \
  --num-return-sequences 200 --format json "" </dev/null | "$built/examples/parse_stories"
