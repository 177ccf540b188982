# script/record.awk -- what became of a record of NVRTC: awk -f script/record.awk side=1 OLD side=2 NEW.
#
# Lines as tests/jit/nvrtc_record.h has them. How many texts are new, gone, and of other figures, the first of these by name; and
# of both records the kernels, the most registers and what spills.

$1 == "#" && $2 == "NVRTC" { made[side] = $3 " for " $4 }
/^#/ { next }
{
    said[side, $1] = substr($0, 18)
    texts[side]++
    hash[$1] = 1
    for (i = 2; i <= NF; i++) {
        kernels[side]++
        registers = $i + 0
        if (registers > most[side]) most[side] = registers
        if (match($i, /p[0-9]+/)) {
            spill[side]++
            bytes[side] += substr($i, RSTART + 1, RLENGTH - 1)
        }
    }
}
function whole(side) {
    return sprintf("%d texts, %d kernels, at most %d registers, %d spill %d bytes (%s)", texts[side], kernels[side],
                   most[side], spill[side], bytes[side], made[side] == "" ? "no record" : "NVRTC " made[side])
}
END {
    for (h in hash) {
        if (!((1, h) in said)) fresh++
        else if (!((2, h) in said)) gone++
        else if (said[1, h] != said[2, h] && changed++ < 20) print h ": " said[1, h] " -> " said[2, h]
    }
    printf "%d texts are new, %d are gone, of %d NVRTC says something else\n", fresh, gone, changed
    print "before: " whole(1)
    print "now:    " whole(2)
}
