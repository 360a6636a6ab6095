#!/usr/bin/env bash
# Builds the two programs with CUDA, and packs them with everything else that bench/gpu.sh needs into one archive, for a machine with
# a GPU but without Rust and network.
#   bench/gpu_pack.sh [ARCHIVE] [TEXT]   (ARCHIVE: target/ember-gpu.tar.xz; TEXT, the Shakespeare to train on, is packed too)
# burn's CUDA feature needs LLVM for the build: install it first, where its build script finds or downloads it. Neither a CUDA toolkit
# nor a GPU is needed here. CUDARC_CUDA_VERSION is the CUDA version of the target machine.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
archive=$(realpath -m "${1:-$here/target/ember-gpu.tar.xz}")
text=${2:-}
most=60000000

export CUDARC_CUDA_VERSION=${CUDARC_CUDA_VERSION:-13000}
# A separate folder, so that the programs without CUDA in target/ are kept.
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

# The two programs link mostly the same code: with a dictionary as large as both, the second is compressed by references to the first.
tar -C "$work" --sort=name --owner=0 --group=0 -cf - ember | xz -T1 --lzma2=preset=6,dict=384MiB >"$archive"
size=$(stat -c %s "$archive")
ls -l "$work/ember/ember-"*
echo "$archive: $size bytes"
[ "$size" -le "$most" ] || { echo "that is more than $most bytes" >&2; exit 1; }
