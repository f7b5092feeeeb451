#!/usr/bin/env bash
# Runs tests over kernels that the address sanitizer watches: native/asan.sh [PYTEST ARGUMENT...] (default tests/gdb).
# gdb and our Pythons get its runtime, target programs do not. Meanwhile the checkout's own library is put aside.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

machine=$(uname -m)-unknown-linux-gnu
library=$PWD/native/target/release/libgdbext_native.so
place=$PWD/build/asan
gdb=$(type -P "${GDB:-gdb}")

runtime=$(gcc -print-file-name=libasan.so)
[[ $runtime == /* ]] || { echo "no libasan.so: install gcc" >&2; exit 2; }
cargo +nightly --version >/dev/null 2>&1 || { echo "no nightly: rustup toolchain install nightly" >&2; exit 2; }
rm -rf "$place"
mkdir -p "$place"
RUSTFLAGS=-Zsanitizer=address cargo +nightly build -q --release --offline --manifest-path native/Cargo.toml \
    --target "$machine" --target-dir native/target/asan

# The sanitizer starts at the first malloc. In gdb that would be newlocale()'s, whose lock dlerror() then gives up.
gcc -shared -fPIC -Wl,-z,initfirst -o "$place/first.so" -x c - <<'END'
#include <stdlib.h>
__attribute__((constructor)) static void start(void) { free(malloc(1)); }
END

options=verify_asan_link_order=0:detect_leaks=0:allocator_may_return_null=1:log_path=$place/report
names=(LD_PRELOAD ASAN_OPTIONS PYTHONMALLOC)

# Write program $1, which runs the command that follows watched. One that has a preload of its own is a target.
write_watched() {
    # shellcheck disable=SC2016 # the program itself expands it
    printf '#!/bin/sh\nexec /usr/bin/env LD_PRELOAD="${LD_PRELOAD:-%s:%s}" ASAN_OPTIONS=%q PYTHONMALLOC=malloc %s "$@"\n' \
        "$runtime" "$place/first.so" "$options" "$(printf '%q ' "${@:2}")" >"$place/$1"
    chmod +x "$place/$1"
}
write_watched python "$PWD/.venv/bin/python"
mapfile -t unset < <(printf -- '-iex\nunset environment %s\n' "${names[@]}")
write_watched gdb "$gdb" "${unset[@]}"
cat >"$place/watched.py" <<END
import os, sys
for name in "${names[*]} PYTHONPATH".split():
    os.environ.pop(name, None)
os.environ["GDB"], sys.executable = "$place/gdb", "$place/python"
END

mv "$library" "$place/unwatched.so"
trap 'mv -f "$place/unwatched.so" "$library"' EXIT
cp "native/target/asan/$machine/release/${library##*/}" "$library"

# The sanitizer takes memory and time, and reserves addresses: what bounds those of ours says nothing here.
measuring=(test_no_harm.py test_little_memory.py test_lock_waits.py::test_what_64_threads_cost)

status=0
PYTHONPATH=$place nice -n 15 "$place/python" -m pytest -p watched -p no:cacheprovider -q "${measuring[@]/#/--deselect=tests/gdb/}" \
    "${@:-tests/gdb}" || status=1
reports=("$place"/report.*)
[[ ! -e ${reports[0]} ]] || { head -n 3 "${reports[@]}" && status=1; }
exit "$status"
