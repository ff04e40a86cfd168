#!/usr/bin/env bash
# House rules that the compiler does not know: waiting is a parameter, and orderings are explained.
set -euo pipefail
cd "$(dirname "$0")/.."
failed=0

# No algorithm spins, yields or sleeps by itself: that is `spin_until`'s and the waiting policies' business.
if grep -nE 'spin_loop|sched_yield|thread::yield_now|SYS_futex' -r crates/sync/src crates/am/src; then
    echo "waiting outside the machine and the policies (see above)"
    failed=1
fi

# Every ordering stronger than Relaxed in an algorithm has a comment that names it (or says what it pairs with) on the lines before.
awk '
    FNR == 1 { last = -100 }
    /^#\[cfg\(test\)\]/ { nextfile }
    /\/\/.*(Acquire|Release|AcqRel|SeqCst|ordered|as \(|pairs)/ { last = FNR }
    !/^ *\/\// && /Ordering::(Acquire|Release|AcqRel|SeqCst)/ {
        if (FNR - last > 16) { printf "%s:%d: %s\n", FILENAME, FNR, $0; bad = 1 }
    }
    END { exit bad }
' crates/sync/src/*.rs crates/sync/src/locks/*.rs crates/sync/src/queues/*.rs crates/sync/src/barriers/*.rs crates/sync/src/dcas/*.rs crates/sync/src/stable/*.rs crates/am/src/claim/*.rs crates/am/src/queue.rs || {
    echo "orderings without an explanation (see above)"
    failed=1
}
exit $failed
