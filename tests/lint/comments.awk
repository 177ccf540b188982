# tests/lint/comments.awk -- a paragraph of a public header that declares functions has a comment before
# or at its first declaration.
#
# A paragraph ends at a blank line. WEFT_API marks a function.

FNR == 1 { commented = 0; reported = 0 }
/^[ \t]*$/ { commented = 0; reported = 0 }
/\*\// { commented = 1 }
/^(WEFT_API|extern)[ \t].*\(/ {
    if (!commented && !reported && $0 !~ /^extern "C"/) {
        print FILENAME ":" FNR ": public function without a comment"
        reported = 1
    }
}
