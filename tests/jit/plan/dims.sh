#!/bin/sh
# dims.sh WEFT-OPT -- sizes of symbols on weft-opt's command line: what they make of a function and its plan, and what is refused.
opt=$1 failed=0
whole() { # the function of symbols.wir, as `weft show` prints one
    printf '# made by weft\n# input   input_0 f32[n,m]\n'
    sed -n '/^fn /,/^}/p' tests/jit/plan/symbols.wir
}
says() { # says STATUS WORDS ARGUMENT...: weft-opt's status, and what it prints
    status=$1 words=$2
    shift 2
    text=$(whole | "$opt" "$@" 2>&1)
    if [ $? != "$status" ] || ! printf '%s\n' "$text" | grep -qF -- "$words"; then
        printf 'weft-opt %s: not status %s and "%s" but\n%s\n' "$*" "$status" "$words" "$text"
        failed=1
    fi
}
says 0 'fn f symbols(n%4==0, 2<=m<=9) {' --passes=
says 0 'softmax f32[2,3] %4' --passes=dce --dim n=8 --dim m=3
says 0 'softmax f32[16,9] %4' --dim=n=64 --dim=m=9 --passes=dce
says 0 'softmax' --plan --dim n=8 --dim m=3
says 0 'softmax' --plan=bare,n=8 --dim m=3
says 1 "how large is 'm'? say --dim m=SIZE" --plan --dim n=8
says 1 "how large is 'n'? say --dim n=SIZE" --plan
says 1 "how large is 'n'? say --dim n=SIZE" --dim m=3
says 1 "how large is 'n'? say --dim n=SIZE" --dim n=8x --dim m=3 --plan
says 1 'n=9 is no size of n%4==0' --plan --dim n=9 --dim m=3
says 1 'm=10 is no size of 2<=m<=9' --plan --dim n=8 --dim m=10
says 1 'k is no symbol of the function' --plan --dim n=8 --dim m=3 --dim k=2
says 2 '8? see the head of' --dim 8
exit $failed
