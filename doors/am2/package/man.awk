# Writes the manual's pages out of the headers, one for each: awk -v out=FOLDER -v version=VERSION -f man.awk am2.h ammpi.h ammpi_spmd.h
# The first comment is the description. A comment at a line's beginning begins a part of the page, with the code below it.
# Each function and each variable has a page that leads to the header's.

function escaped(text) {
    gsub(/\\/, "\\e", text)
    gsub(/-/, "\\-", text)
    sub(/^[.']/, "\\\\\\&&", text)
    return text
}
function begin(name) {
    file = out "/" name ".3"
    in_code = in_comment = is_left_out = is_continued = in_body = in_head = 0
    print ".TH " toupper(name) " 3 \"\" \"towpath " version "\" \"Towpath\"" > file
    print ".SH NAME\n" name " \\- " (name == "am2" ? "Active Messages II" : name == "ammpi" ? "Active Messages II by the names of AMMPI" : "start of Active Messages programs of several ranks") > file
    print ".SH SYNOPSIS\n.B #include <" name ".h>\n.PP\ncc \\-I PREFIX/include/towpath\\-am PROGRAM.c \\-ltowpath\\-am" > file
    print ".SH DESCRIPTION" > file
}
function finish() {
    if (in_code) print ".fi" > file
    print ".SH SEE ALSO\n" (file ~ /am2.3$/ ? ".BR ammpi (3),\n.BR ammpi_spmd (3),\n" : ".BR am2 (3),\n") ".BR towpath (3)" > file
    close(file)
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
    print line == "" ? ".PP" : escaped(line) > file
}
# A page for the name before a text that begins with what the pattern matches.
function lead(line, after) {
    if (!match(line, "[A-Za-z_0-9]+" after)) return
    name = substr(line, RSTART)
    sub(/[^A-Za-z_0-9].*$/, "", name)
    print ".so man3/" page ".3" > (out "/" name ".3")
    close(out "/" name ".3")
}
FNR == 1 {
    if (NR != 1) finish()
    page = FILENAME
    sub(/^.*\//, "", page)
    sub(/\.h$/, "", page)
    begin(page)
}
/^\/\* / || in_comment {
    line = $0
    if (!in_comment && !in_code) print ".PP" > file
    in_comment = line !~ /\*\/$/
    sub(/^\/\* /, "", line); sub(/^ \* ?/, "", line); sub(/ *\*\/$/, "", line)
    prose(line)
    next
}
# Macros of more than a line, and those that only the headers use.
is_continued { is_continued = /\\$/; next }
/^#define / && (/\\$/ || /^#define (AM2_|AMMPI_(BEGIN|END)_|END_EXTERNC|AM_SetHandler)/) { is_continued = /\\$/; next }
/^#define AMMPI_SPMDStartup/ { next }
# Of a function with a body its head is shown.
in_body { if (/^\}/) in_body = 0; next }
/^static inline / || in_head {
    if (!in_head) lead($0, "\\(")
    line = $0
    sub(/^static inline /, "", line)
    in_head = line !~ /\{/
    if (!in_head) in_body = line !~ /\}$/
    sub(/ \{.*$/, ";", line)
    code(line)
    next
}
# Of the calls with 0 to 16 arguments the first and the last are shown.
/^int AM[A-Za-z_0-9]*[^0-9]([1-9]|1[0-5])\(/ { is_left_out = 1 }
/^int / && !/^int AM[A-Za-z_0-9]*[^0-9]([1-9]|1[0-5])\(/ { is_left_out = 0 }
/^(int|void) [A-Za-z_0-9]+\(/ || /^const char \*[A-Za-z_0-9]+\(/ { lead($0, "\\(") }
/^extern [a-z].*\)\(int\);$/ { lead($0, "\\)\\(") }
/^extern [a-z].*[A-Za-z_0-9];$/ { lead($0, ";") }
/^(int|void|const char|extern [a-z]|typedef|#define AM|#define E|#define ammpi_|#define amx_|struct|    |\} [a-z])/ && !is_left_out && !/_H$/ { code($0) }
END { finish() }
