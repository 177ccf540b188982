# script/common.sh -- what the commands in this folder share. Sourced, never run.
#
# Every command works from any directory, without a terminal and with an empty environment.

set -eu
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
export LC_ALL=C
jobs=${WEFT_JOBS:-$(nproc 2>/dev/null || echo 2)}

say() { printf '== %s\n' "$*"; }
die() { printf '%s: %s\n' "$(basename "$0")" "$*" >&2; exit 1; }

# configure PRESET [cmake arguments]: quiet unless it fails or has a warning to give.
configure() {
    local preset=$1 log
    shift
    say "configure: $preset"
    log=$(mktemp)
    if ! cmake --preset "$preset" -Wno-dev "$@" >"$log" 2>&1; then
        cat "$log" >&2
        rm -f "$log"
        die "configuring preset $preset failed"
    fi
    sed -n '/^CMake Warning/,/^$/p; /LLVM back end/p' "$log"
    rm -f "$log"
}

# build PRESET [targets]: shows compiler output only when there is something to read.
build() {
    local preset=$1
    shift
    say "build: $preset"
    cmake --build "build/$preset" --parallel "$jobs" ${1:+--target "$@"} -- --quiet
}
