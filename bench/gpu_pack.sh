#!/usr/bin/env bash
# Packs the two programs, built with CUDA, and what bench/gpu.sh needs beside them into one archive for a machine that has a GPU but
# no Rust and no network.
#   bench/gpu_pack.sh [ARCHIVE] [TEXT]   (ARCHIVE: target/ember-gpu.tar.xz; TEXT, the Shakespeare to train on, is packed too)
# burn's CUDA feature needs an LLVM to build with: set LLVM up first, where its build script finds or downloads it. A CUDA toolkit is not
# needed here, and neither is a GPU. CUDARC_CUDA_VERSION names the CUDA that the programs will meet.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
archive=$(realpath -m "${1:-$here/target/ember-gpu.tar.xz}")
text=${2:-}
most=60000000

export CUDARC_CUDA_VERSION=${CUDARC_CUDA_VERSION:-13000}
# A folder of its own: the programs without CUDA in target/ stay as they are.
target=${CARGO_TARGET_DIR:-$here/target/cuda}
for program in ember-generate ember-train; do
  cargo build --release --locked --manifest-path "$here/Cargo.toml" --target-dir "$target" -p "$program" --features cuda
done

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/ember"
for program in ember-generate ember-train; do
  strip -o "$work/ember/$program" "$target/release/$program"
done
cp -r "$here/bench" "$work/ember/"
rm -rf "$work/ember/bench/results"
git -C "$here" rev-parse --short HEAD >"$work/ember/commit"
[ -z "$text" ] || cp "$text" "$work/ember/shakespeare.txt"

# The two programs share most of what they link. A dictionary as long as both lets the second refer back to the first.
tar -C "$work" --sort=name --owner=0 --group=0 -cf - ember | xz -T1 --lzma2=preset=6,dict=384MiB >"$archive"
size=$(stat -c %s "$archive")
ls -l "$work/ember/ember-"*
echo "$archive: $size bytes"
[ "$size" -le "$most" ] || { echo "that is more than $most bytes" >&2; exit 1; }
