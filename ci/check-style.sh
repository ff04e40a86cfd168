#!/usr/bin/env bash
# The rules of docs/style.md that a script can check. Usage: bash ci/check-style.sh [FOLDER …]
set -euo pipefail
cd "$(dirname "$0")/.."
failed=0
if [ $# -eq 0 ]; then
    set -- core mpi doors lab bin
    # The orderings of the code and what is known of each.
    ci/weaken-orderings --check || failed=1
    ci/leave-out-repairs --check || failed=1
    # The page of the algorithms and the headers of their files.
    ci/algorithms-page --check || failed=1
fi

# No algorithm spins, yields or sleeps by itself: that is `spin_until`'s and the waiting policies' business.
algorithms=$(git ls-files 'core/sync/src/*.rs' 'core/structures/src/*.rs' 'core/channel/src/*.rs' 'core/am/src/*.rs')
if grep -nE 'spin_loop|sched_yield|thread::yield_now|SYS_futex' $algorithms; then
    echo "waiting outside the machine and the policies (see above)"
    failed=1
fi

files=$(git ls-files --cached --others --exclude-standard "$@" | grep '\.rs$')

# Comments. (Columns are counted in characters.)
LC_ALL=C awk '
    function report(what) { printf "%s:%d: %s: %s\n", FILENAME, FNR, what, $0; bad = 1 }
    { columns = $0; gsub(/[\200-\277]/, "", columns); columns = length(columns) }
    FNR == 1 { doc = 0; fence = 0 }
    /^ *\/\// && columns > 100 && !/^ *\/\/[\/!]? *\|/ && !/https?:/ { report("comment of more than 100 columns") }
    /(^|[ ;{}(),])\/\/[\/!]?( |$)/ {
        text = tolower($0)
        sub(/^.*\/\/[\/!]? */, "", text)
        if (text ~ /(^|[^a-z_`])(who|whoever|whom|somebody|someone|nobody|everybody|everyone|anybody|anyone)([^a-z_`]|$)/)
            report("forbidden subject")
        if ($0 ~ /^ *\/\/[\/!]? (.*[.:;] )?What [a-z]/) report("forbidden subject")
        if (text ~ /(^|[^a-z])(likewise|as above|as before)([^a-z]|$)/) report("a reason that stands elsewhere")
    }
    tolower($0) ~ /(^|[^a-z])(crowded|bells?|ropes?|volleys?|vigils?)([^a-z]|$)/ { report("word that the glossary replaces") }
    /^ *\/\*/ || /^ *#!?\[doc *= *"/ { report("comment that is no line comment") }
    /^ *\/\/[\/!]/ {
        if (!doc) {
            first = $0
            sub(/^ *\/\/[\/!] */, "", first)
            if (columns > 90) report("first line of more than 90 columns")
            if (first ~ /^(What|How|Whether|Where|Which|When|Why|Who|Whoever|Whose|Whom|Somebody|Nobody|Everybody|So |As |Likewise|The same|The usual|Like |Not |It |They |That |(If|With|Of|In|By|For|From|Under|Over|At|To|On|Until|Between|Before|After|While|Without|Only|Up to|There|Never|Always|About|Beyond|Beside|Among|Against|Into|Within|Through|During|Since|Once|Then|We) )/)
                report("first line that is neither a noun phrase nor a verb")
            else if (tolower(first) ~ /(^|[^a-z`_])what([^a-z_]|$)/) report("forbidden subject")
        }
        doc = 1
        next
    }
    { doc = 0 }
    END { exit bad }
' $files || { echo "comments (see above; docs/style.md)"; failed=1; }

# Orderings: each that is not Relaxed has a number and a partner on the eight lines before it. (A module of tests, or
# what is only compared with an ordering, needs none; nor does a list of all orderings, in `weaken.rs`.)
sources=$(printf '%s\n' $files | grep '/src/' | grep -vE '/(tests|model_tests|[a-z_]*_tests)\.rs$|/tests/' || true)
# Rules that pass over modules of tests.
outside_tests='
    FNR == 1 { test = inside = 0 }
    inside { if (/^}/) inside = 0; next }
    /^ *#\[cfg\((all\()?test/ { test = FNR; next }
    test && FNR == test + 1 && /^ *mod [a-z_]+ \{/ { inside = !/}$/; next }
'
[ -z "$sources" ] || awk "$outside_tests"'
    FNR == 1 && FILENAME ~ /machine\/src\/weaken.rs$/ { nextfile }
    FNR == 1 { last = -100; text = "" }
    test && FNR == test + 1 && /^ *#\[/ { test = FNR; next }
    /^ *\/\// {
        comment = $0
        sub(/^ *\/\/[\/!]?/, "", comment)
        text = (FNR == line + 1) ? text comment : comment
        line = FNR
        if (text ~ /\([A-Z]*[0-9]+[a-z]?(, *[A-Z]*[0-9]+[a-z]?)*\)/ && text ~ /pairs with|fence|ordered|orders|partner|total order/) last = FNR
        next
    }
    /(Ordering::|[(,] *|^        +)(Acquire|Release|AcqRel|SeqCst)([^A-Za-z]|$)/ && !/(Acquire|Release|AcqRel|SeqCst) *(=>|\|)/ && !/Ordering::[A-Za-z]+ *(=>|\|)/ && !/matches!/ && !/[!=]= Ordering::/ {
        if (FNR - last > 8) { printf "%s:%d: %s\n", FILENAME, FNR, $0; bad = 1 }
    }
    END { exit bad }
' $sources || { echo "orderings without a number or a partner (see above; docs/style.md)"; failed=1; }

# Names of types: used once, or by modules of which it is the main type.
# Stays: `Arguments` of each command; `LabCommand` and `Iceoryx2`, with a feature or without; `Readme`, of which each
# crate tests its own; `Error`, by Rust's custom.
allowed='Arguments|LabCommand|Iceoryx2|Readme|Error'
[ -z "$sources" ] || awk -v allowed="^($allowed)$" "$outside_tests"'
    FNR == 1 {
        stem = FILENAME
        sub(/\/(mod|lib)\.rs$/, "", stem); sub(/\/src$/, "", stem); sub(/\.rs$/, "", stem); sub(/^.*\//, "", stem)
        gsub(/_/, "", stem); sub(/ies$/, "y", stem); sub(/s$/, "", stem)
    }
    test && FNR == test + 1 && /^ *#\[/ { test = FNR; next }
    match($0, /^ *(pub(\([a-z :]+\))? )?(unsafe )?(struct|enum|trait|union) [A-Z][A-Za-z0-9]*/) {
        name = substr($0, RSTART, RLENGTH); sub(/^.* /, "", name)
        main = tolower(name); sub(/ies$/, "y", main); sub(/s$/, "", main)
        if (name ~ allowed) next
        is_main = main == stem
        if (name in first && !(is_main && first_is_main[name])) {
            printf "%s:%d: `%s` is also in %s\n", FILENAME, FNR, name, first[name]
            bad = 1
        }
        if (!(name in first)) { first[name] = FILENAME ":" FNR; first_is_main[name] = is_main }
    }
    END { exit bad }
' $sources || { echo "names of types that are used twice (see above; docs/style.md)"; failed=1; }

# Texts that users read: strings of the code, and pages.
subjects='(who|whoever|whom|somebody|someone|nobody|everybody|everyone|anybody|anyone)'
[ -z "$sources" ] || LC_ALL=C awk -v subjects="(^|[^a-z_])$subjects([^a-z_@]|$)" "$outside_tests"'
    /^ *\/\// || !/"/ { next }
    {
        n = split($0, part, "\"")
        for (i = 2; i <= n; i += 2) {
            gsub(/\{[a-z_]*(:[^}]*)?\}/, "", part[i])
            if (tolower(part[i]) ~ subjects) { printf "%s:%d: %s\n", FILENAME, FNR, $0; bad = 1 }
        }
    }
    END { exit bad }
' $sources || { echo "forbidden subjects in texts (see above; docs/style.md)"; failed=1; }
pages=$(git ls-files --cached --others --exclude-standard '*.md' | grep -vE '^docs/(style|glossary)\.md$|^docs/measurements/')
if grep -niwE "$subjects" $pages; then
    echo "forbidden subjects in pages (see above; docs/style.md)"
    failed=1
fi

# The changelog: headings, and one line for each change.
if sed '0,/^## /d' CHANGELOG.md | grep -nvE '^(- [^ ]|#+ |$|The first release)'; then
    echo "lines of CHANGELOG.md that are no item (see above; numbers from the first heading on)"
    failed=1
fi

# Names of tests.
awk '
    FNR == 1 { test = 0 }
    /#\[test\]/ { test = 1 }
    test && !/^ *\/\// && match($0, /fn [a-z0-9_]+/) {
        name = substr($0, RSTART + 3, RLENGTH - 3)
        if (length(name) > 60) { printf "%s:%d: more than 60 characters: %s\n", FILENAME, FNR, name; bad = 1 }
        if (name ~ /(^|_)(who|whoever|whom|somebody|someone|nobody|everybody|everyone|anybody|anyone)(_|$)/) {
            printf "%s:%d: forbidden subject: %s\n", FILENAME, FNR, name
            bad = 1
        }
        test = 0
    }
    END { exit bad }
' $files || { echo "names of tests (see above; docs/style.md)"; failed=1; }
exit $failed
