# Writes the manual's page out of am2.h: awk -v out=FOLDER -v version=VERSION -f man.awk am2.h
# The first comment is the description. A comment at a line's beginning begins a part of the page, with the code below it.

function escaped(text) {
    gsub(/\\/, "\\e", text)
    gsub(/-/, "\\-", text)
    sub(/^[.']/, "\\\\\\&&", text)
    return text
}
BEGIN {
    file = out "/am2.3"
    print ".TH AM2 3 \"\" \"towpath " version "\" \"Towpath\"" > file
    print ".SH NAME\nam2 \\- Active Messages II" > file
    print ".SH SYNOPSIS\n.B #include <am2.h>\n.PP\ncc \\-I PREFIX/include/towpath\\-am PROGRAM.c \\-ltowpath\\-am" > file
    print ".SH DESCRIPTION" > file
}
function code(line) {
    if (!in_code) print ".PP\n.nf" > file
    in_code = 1
    print escaped(line) > file
}
function prose(line) {
    if (in_code) print ".fi\n.PP" > file
    in_code = 0
    if (line ~ /^  /) { sub(/^ */, "", line); print ".br" > file }
    if (line != "") print escaped(line) > file
}
/^\/\* / || in_comment {
    line = $0
    if (!in_comment && !in_code) print ".PP" > file
    in_comment = line !~ /\*\/$/
    sub(/^\/\* /, "", line); sub(/^ \* ?/, "", line); sub(/ *\*\/$/, "", line)
    prose(line)
    next
}
# Of the calls with 0 to 16 arguments the first and the last are shown.
/^int AM[A-Za-z_0-9]*[^0-9]([1-9]|1[0-5])\(/ { shown = 0; is_left_out = 1 }
/^int / && !/^int AM[A-Za-z_0-9]*[^0-9]([1-9]|1[0-5])\(/ { is_left_out = 0 }
/^int [A-Za-z_0-9]+\(/ {
    name = $0
    sub(/\(.*$/, "", name); sub(/^int /, "", name)
    print ".so man3/am2.3" > (out "/" name ".3")
    close(out "/" name ".3")
}
/^(int|void|typedef|#define AM|#define E|struct|    |\})/ && !is_left_out && !/_H$/ { code($0) }
END {
    if (in_code) print ".fi" > file
    print ".SH SEE ALSO\n.BR towpath (3)" > file
}
