//! Locks and jobs of one host and of several, in one program: most of the tests wait.

#[path = "../launching/mod.rs"]
mod launching;

mod lock;
#[cfg(feature = "etcd")]
mod lock_etcd;
mod lock_hosts;
mod run_hosts;

/// Script of a holder: notes another one that runs, and its token.
///
/// A process that is being killed gives the lock on before it is a zombie, so the check is
/// repeated for a while.
const HOLDER: &str = r#"
old=$(cat in 2>/dev/null)
if [ -n "$old" ]; then
    n=0
    while [ $n -lt 200 ]; do
        case "$(cat /proc/$old/stat 2>/dev/null)" in ""|*") Z "*|*") X "*) break;; esac
        n=$((n + 1)); sleep 0.01
    done
    [ $n -lt 200 ] || echo "$old holds it beside $$" >> violations
fi
echo $$ > in
echo $TOWPATH_TOKEN >> tokens
sleep 0.00$(($$ % 9))
: > in
"#;
