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
[ -z "$sources" ] || awk '
    FNR == 1 && FILENAME ~ /machine\/src\/weaken.rs$/ { nextfile }
    FNR == 1 { last = -100; text = ""; test = 0 }
    /^ *#\[cfg\((all\()?test/ { test = FNR; next }
    test && FNR == test + 1 && /^ *#\[/ { test = FNR; next }
    test && FNR == test + 1 && /^ *mod [a-z_]+ \{/ { nextfile }
    /^ *\/\// {
        comment = $0
        sub(/^ *\/\/[\/!]?/, "", comment)
        text = (FNR == line + 1) ? text comment : comment
        line = FNR
        if (text ~ /\([A-Z]*[0-9]+[a-z]?(, *[A-Z]*[0-9]+[a-z]?)*\)/ && text ~ /pairs with|fence|ordered|orders|partner|total order/) last = FNR
        next
    }
    /(Ordering::|[(,] *)(Acquire|Release|AcqRel|SeqCst)([^A-Za-z]|$)/ && !/Ordering::[A-Za-z]+ *(=>|\|)/ && !/matches!/ && !/[!=]= Ordering::/ {
        if (FNR - last > 8) { printf "%s:%d: %s\n", FILENAME, FNR, $0; bad = 1 }
    }
    END { exit bad }
' $sources || { echo "orderings without a number or a partner (see above; docs/style.md)"; failed=1; }

# Names of types: used once, or by modules of which it is the main type.
# Stays: `Arguments` of each command; `LabCommand` and `Iceoryx2`, with a feature or without; `Readme`, of which each
# crate tests its own; `Error`, by Rust's custom.
allowed='Arguments|LabCommand|Iceoryx2|Readme|Error'
[ -z "$sources" ] || awk -v allowed="^($allowed)$" '
    FNR == 1 {
        test = 0
        stem = FILENAME
        sub(/\/(mod|lib)\.rs$/, "", stem); sub(/\/src$/, "", stem); sub(/\.rs$/, "", stem); sub(/^.*\//, "", stem)
        gsub(/_/, "", stem); sub(/ies$/, "y", stem); sub(/s$/, "", stem)
    }
    /^ *#\[cfg\((all\()?test/ { test = FNR; next }
    test && FNR == test + 1 && /^ *#\[/ { test = FNR; next }
    test && FNR == test + 1 && /^ *mod [a-z_]+ \{/ { nextfile }
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

# Names of tests.
awk '
    /#\[test\]/ { test = FNR }
    test && FNR <= test + 3 && match($0, /fn [a-z0-9_]+/) {
        if (RLENGTH - 3 > 60) { printf "%s:%d: %s\n", FILENAME, FNR, substr($0, RSTART + 3, RLENGTH - 3); bad = 1 }
        test = 0
    }
    END { exit bad }
' $files || { echo "names of tests of more than 60 characters (see above)"; failed=1; }
exit $failed
