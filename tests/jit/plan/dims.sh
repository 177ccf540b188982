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
for size in 8x -4 +x 9223372036854775808 ''; do
    says 1 "a size of 0 or more, not 'n=$size'" --dim "n=$size" --passes=dce
    says 1 "a size of 0 or more, not 'n=$size'" --dim "n=$size" --dim m=3 --plan
    says 1 "a size of 0 or more, not 'n=$size'" --plan="rows,n=$size" --dim m=3
done
says 1 'n=9 is no size of n%4==0' --plan --dim n=9 --dim m=3
says 1 'm=10 is no size of 2<=m<=9' --plan --dim n=8 --dim m=10
says 1 'k is no symbol of the function' --plan --dim n=8 --dim m=3 --dim k=2
says 2 '8? see the head of' --dim 8
whole() { # an input's extent may be computed
    printf 'fn f symbols(n) {\n  %%1 = input f32[n-8]\n  %%2 = exp f32[n-8] %%1\n  return %%2\n}\n'
}
says 0 'exp f32[1] %1' --dim n=9
says 1 "'n-8' would be -4, since 'n' is 4" --dim n=4
exit $failed
