#!/usr/bin/env bash
# House rules that the compiler does not know: waiting is a parameter, and orderings are explained.
set -euo pipefail
cd "$(dirname "$0")/.."
failed=0

# No algorithm spins, yields or sleeps by itself: that is `spin_until`'s and the waiting policies' business.
if grep -nE 'spin_loop|sched_yield|thread::yield_now|SYS_futex' -r core/sync/src core/structures/src core/channel/src core/am/src; then
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
' core/sync/src/*.rs core/sync/src/locks/*.rs core/sync/src/barriers/*.rs core/structures/src/*.rs core/structures/src/queues/*.rs core/structures/src/dcas/*.rs core/structures/src/nonblocking/*.rs core/channel/src/claim/*.rs core/channel/src/queue.rs || {
    echo "orderings without an explanation (see above)"
    failed=1
}
exit $failed
