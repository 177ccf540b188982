# tests/lint/links.awk -- links between pages that point nowhere, and pages of docs/ that no page links to.
#
# Reads every page twice (awk -f tests/lint/links.awk PAGES PAGES): first headings, then links. A link [text](target)
# must name a file beside the page, and behind '#' a heading of it, spelled as GitHub does: lower case, spaces are
# hyphens, punctuation goes. Code blocks are passed over.
function slug(text) {
    text = tolower(text)
    gsub(/`|\*|\[|\]\([^)]*\)/, "", text)
    gsub(/[^a-z0-9 _-]/, "", text)
    gsub(/ /, "-", text)
    return text
}
function folder(path) { return match(path, /.*\//) ? substr(path, 1, RLENGTH) : "" }
function exists(path,    line, got) {
    if (!(path in known)) {
        known[path] = system("test -e '" path "'") == 0
    }
    return known[path]
}
FNR == 1 {
    inside = 0
    round[FILENAME]++
    if (round[FILENAME] == 1)
        pages[++n] = FILENAME
}
/^```/ { inside = !inside; next }
inside { next }
round[FILENAME] == 1 {
    if (/^#+ /) {
        text = $0
        sub(/^#+ +/, "", text)
        heading[FILENAME "#" slug(text)] = 1
    }
    next
}
{
    rest = $0
    while (match(rest, /\]\([^)]+\)/)) {
        target = substr(rest, RSTART + 2, RLENGTH - 3)
        rest = substr(rest, RSTART + RLENGTH)
        if (target ~ /^[a-z]+:/)
            continue
        anchor = ""
        if ((i = index(target, "#")) > 0) {
            anchor = substr(target, i + 1)
            target = substr(target, 1, i - 1)
        }
        path = target == "" ? FILENAME : folder(FILENAME) target
        while (sub(/[^\/]+\/\.\.\//, "", path))
            ;
        if (!exists(path))
            print FILENAME ":" FNR ": no such file: " path
        else if (anchor != "" && !(path "#" anchor in heading))
            print FILENAME ":" FNR ": no heading #" anchor " in " path
        if (path != FILENAME)
            linked[path] = 1
    }
}
END {
    for (i = 1; i <= n; i++)
        if (pages[i] ~ /^docs\// && !(pages[i] in linked))
            print pages[i] ": no other page links to it"
}
