#!/usr/bin/env bash
# Fuzzes each native kernel RUNS times (default 1000000), one after the other: native/fuzz.sh [RUNS [TARGET...]]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

runs=${1:-1000000}
targets=("${@:2}")
[[ ${#targets[@]} -gt 0 ]] || targets=(chunks rows counts slabs pages chains tally scan mark edges components breadth dominators ffi)
declare -A longest=([counts]=300 [slabs]=300 [mark]=500 [edges]=500 [ffi]=600) # bytes that a target can make use of

cargo fuzz --version >/dev/null 2>&1 || { echo "no cargo-fuzz: cargo install cargo-fuzz" >&2; exit 2; }
cargo +nightly --version >/dev/null 2>&1 || { echo "no nightly: rustup toolchain install nightly" >&2; exit 2; }

log=$(mktemp)
trap 'rm -f "$log"' EXIT
failed=0
for target in "${targets[@]}"; do
    # Memory beyond the limit and an input of more than 10 s are findings too.
    if cargo +nightly fuzz run "$target" -- -runs="$runs" -max_len="${longest[$target]:-400}" -len_control=20 \
        -timeout=10 -rss_limit_mb=1024 -malloc_limit_mb=64 >"$log" 2>&1; then
        printf '%-8s %s\n' "$target" "$(grep -a '^Done' "$log")"
    else
        failed=1
        printf '%-8s FAILED: %s\n' "$target" "$(grep -a -m1 -E 'panicked at|ERROR: |^error' "$log" || tail -1 "$log")"
        grep -a 'Test unit written' "$log" || true
    fi
done
exit "$failed"
