# script/summary.awk -- sums a CTest log: what NVRTC said of the GPU's kernels, skip reasons, then "N passed, N failed, N skipped".
#
# A Criterion program counts as its tests, any other test as one. A program that failed without a failing
# test of its own (a timeout, a leak at exit), or that ran no test at all, counts as one failure. What --filter
# leaves out of a program that is run once more, in another setting, is neither run nor skipped: the run of the
# whole program counts it. Of a test that ran again, as its time was over (ctest --repeat), the last run counts.
# Variables: status = ctest's exit status, bad = failures found elsewhere.

/^sm_[0-9]+: [0-9]+ texts, / || /^record of NVRTC: / || /^[0-9a-f]+\.cu for sm_/ { notes[++nnotes] = $0 }
/^[0-9]+\/[0-9]+ Testing: / { name = $3; ran = 0; good = 0; broke = 0; skips = 0; criterion = 0; filtered = 0 }
/^Command: / { filtered = /"--filter=/ }
/\[SKIP\] / && !(filtered && /: Test is disabled$/) {
    line = $0
    sub(/.*\[SKIP\] /, "", line)
    reason = line
    sub(/^[^ ]*: */, "", reason)
    if (reason == "" || reason == line)
        reason = "no reason given"
    reasons[reason]++
    skips++
}
/Synthesis: Tested: / {
    criterion = 1
    line = $0
    gsub(/[^0-9]+/, " ", line)
    n = split(line, v, " ")
    ran += v[n - 3]
    good += v[n - 2]
    broke += v[n - 1] + v[n]
}
/^Test (Passed|Failed)\./ || /^Test time(d)? ?out/ {
    ok = $0 ~ /Passed/
    bad_ones = broke
    if (!criterion) {
        if (ok) good++; else { bad_ones++; broke = 1 }
    }
    if (criterion && ran + skips == 0) {
        print "no test ran in " name
        bad_ones++
        broke++
    }
    if (!ok && broke == 0)
        bad_ones++
    passed += good - passes[name]
    failed += bad_ones - fails[name]
    skipped += skips - skips_of[name]
    passes[name] = good
    fails[name] = bad_ones
    skips_of[name] = skips
}
END {
    failed += bad
    if (status != 0 && failed == 0)
        failed = 1
    for (i = 1; i <= nnotes; i++)
        print "NVRTC, " notes[i]
    for (reason in reasons)
        printf "skipped %d: %s\n", reasons[reason], reason
    printf "%d passed, %d failed, %d skipped\n", passed, failed, skipped
    exit failed > 0 || passed == 0
}
