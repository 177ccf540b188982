# script/common.sh -- what the commands in this folder share. Sourced, never run.
#
# Every command works from any directory, without a terminal and with an empty environment. Its opening comment is what it says to
# --help, before anything is installed or built.

set -eu
case ${1:-} in -h | --help) sed -n '2,/^[^#]/s/^#\( \|$\)//p' "$0" && exit 0 ;; esac
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

# What examples/char_lm is trained on: its own choice, which every Debian has, or else a text that is here.
demo_text=/usr/share/common-licenses/GPL-3
[ -e $demo_text ] || demo_text=README.md

# losses FILE OTHER: of two runs of examples/char_lm --losses, four words: the first one's last loss less the other's, the most
# that two losses of a step differ by, how many steps from the first on have the same bits, how many steps both have.
losses() {
    awk 'function size(d) { return d < 0 ? -d : d }
        NR == FNR { loss[$1] = $2; bits[$1] = $3; next }
        $1 in loss {
            n++
            last = loss[$1] - $2
            most = size(last) > size(most) ? last : most
            if (bits[$1] == $3 && same == n - 1) same = n
        }
        END { if (n) printf "%.9f %.9f %d %d\n", last, size(most), same, n }' "$1" "$2" 2>/dev/null
}
