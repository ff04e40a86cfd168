# Writes the manual's pages out of towpath.h: awk -v out=FOLDER -v version=VERSION -f man.awk towpath.h
# A comment that begins with "@page NAME - SUMMARY" begins a page; what follows up to the next is on it.

function escaped(text) {
    gsub(/\\/, "\\e", text)
    gsub(/-/, "\\-", text)
    sub(/^[.']/, "\\\\\\&&", text)
    return text
}
function close_page() {
    if (page == "") return
    file = out "/" page ".3"
    print ".TH " toupper(page) " 3 \"\" \"towpath " version "\" \"Towpath\"" > file
    print ".SH NAME\n" names " \\- " escaped(summary) > file
    print ".SH SYNOPSIS\n.nf\n.B #include <towpath.h>\n" > file
    for (k = 1; k <= declarations; k++) print escaped(declaration[k]) > file
    print ".fi\n.SH DESCRIPTION" > file
    printf "%s", description > file
    if (functions) print ".SH FUNCTIONS" functions > file
    if (constants) print ".SH CONSTANTS AND ERRORS" constants > file
    print ".SH SEE ALSO\n.BR towpath (3), tp_strerror (3)" > file
    close(file)
}

/^\/\* @page / {
    close_page()
    page = $3
    names = page
    summary = $0
    sub(/^.* - /, "", summary)
    declarations = 0
    description = functions = constants = ""
    in_description = 1
    literal = 0
    next
}
in_description {
    if (/^ \*\//) {
        if (literal) description = description ".fi\n"
        in_description = 0
        next
    }
    line = $0
    sub(/^ \* ?/, "", line)
    if (line ~ /^  / && !literal) { description = description ".nf\n"; literal = 1 }
    if (line !~ /^  / && line != "" && literal) { description = description ".fi\n"; literal = 0 }
    description = description (line == "" ? (literal ? "" : ".PP\n") : escaped(line) "\n")
    next
}
page == "" { next }
# A comment of what it stands before, of one line or several.
/^\/\* / || in_comment {
    line = $0
    sub(/^\/\* /, "", line)
    sub(/^ \* /, "", line)
    in_comment = line !~ /\*\/$/
    sub(/ *\*\/$/, "", line)
    comment = comment (comment == "" ? "" : " ") line
    next
}
/^#define / {
    constants = constants "\n.TP\n.B " escaped($2) "\n" escaped(comment)
    comment = ""
    next
}
/^enum / { comment = ""; next }
/^    TP_E/ {
    text = $0
    sub(/^.*\/\* /, "", text); sub(/ \*\/.*$/, "", text)
    constants = constants "\n.TP\n.B " escaped($1) "\n" escaped(text)
    next
}
/^typedef .*\(\*/ {
    declaration[++declarations] = $0
    name = $0
    sub(/^[^*]*\(\*/, "", name)
    sub(/\).*$/, "", name)
    functions = functions "\n.TP\n.B " escaped(name) "\n" escaped(comment)
    comment = ""
    next
}
/^typedef struct .*;$/ || /^[a-z].*\);$/ {
    declaration[++declarations] = $0
    name = $0
    if (name ~ /\(/) { sub(/\(.*$/, "", name); sub(/^.*[ *]/, "", name) } else { sub(/;$/, "", name); sub(/^.* /, "", name) }
    functions = functions "\n.TP\n.B " escaped(name) "\n" escaped(comment)
    # The page is found by the names of its functions, too.
    if ($0 ~ /\);$/ && name != page) { print ".so man3/" page ".3" > (out "/" name ".3"); close(out "/" name ".3") }
    comment = ""
    next
}
/^typedef struct .*{$/ { comment = ""; next }
END { close_page() }
