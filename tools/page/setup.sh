# Sourced by tools/check-page, check-playground and check-share: what their tests need. What cannot be had is skipped: that is
# printed, and is a failure if CI is set, since nobody would read it there.

# skip REASON
skip() {
  echo "${0##*/}: skipped: $1" >&2
  if [ -n "${CI:-}" ]; then exit 1; fi
}
skip_all() { skip "$1"; exit 0; }

has_node() { node -e 'process.exit(Number(process.versions.node.split(".")[0]) >= 20 ? 0 : 1)' 2> /dev/null; }

# Prints the path of a Chromium: an installed one, or Debian's, which is installed where that is possible.
browser() {
  local name
  for name in chromium chromium-browser google-chrome; do
    if command -v "$name"; then return; fi
  done
  if [ "$(id -u)" != 0 ] || ! command -v apt-get > /dev/null; then return 1; fi
  echo "${0##*/}: installing chromium" >&2
  apt-get install -y -qq --no-install-recommends chromium > /dev/null 2>&1 && command -v chromium
}

# Installs what the tests import, unless it is there in package.json's version. If that fails, prints npm's first error:
# its last one names a log file.
install_playwright() (
  cd tools/page
  wanted=$(node -p "require('./package.json').devDependencies['playwright-core']")
  installed=$(node -p "require('./node_modules/playwright-core/package.json').version" 2> /dev/null) || installed=none
  if [ "$installed" = "$wanted" ]; then return; fi
  if said=$(npm ci --no-audit --no-fund --loglevel=error 2>&1); then return; fi
  grep -m1 -E '^npm (error|ERR!)' <<< "$said" || tail -n 1 <<< "$said"
  return 1
)

# build PACKAGE...: builds ember-generate and ember-train, unless EMBER_GENERATE and EMBER_TRAIN name them, and sets these.
build() {
  local package name
  for package in "$@"; do
    name=$(tr 'a-z-' 'A-Z_' <<< "$package")
    if [ -z "${!name:-}" ]; then
      cargo build --release --quiet --locked -p "$package"
      export "$name=$(cd "${CARGO_TARGET_DIR:-target}" && pwd)/release/$package"
    fi
  done
}
