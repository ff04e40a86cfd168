//! A full /dev/shm. Towpath needs nothing there, but MPIs do while they start, also where
//! their messages go through us, and MPICH then dies of a SIGBUS without a word. So the provider
//! says it before.

use std::fs::File;
use std::sync::Once;

/// Space in /dev/shm below which MPIs fail, in bytes: MPICH 5.0.2 takes some 4 MiB for
/// two ranks.
const LITTLE: u64 = 16 << 20;

/// Warning for so much space left, if one is due.
fn warning(free: u64) -> Option<String> {
    (free < LITTLE).then(|| {
        format!(
            "towpath: /dev/shm has {} KiB left. Towpath needs none of it, but the MPI itself may, and may end with a bus error (SIGBUS): remove what is left there, or enlarge it (`mount -o remount,size=1G /dev/shm`; \
             in a container `docker run --shm-size=1g`)",
            free >> 10
        )
    })
}

/// Says once if /dev/shm is nearly full.
pub fn warn() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let free =
            File::open("/dev/shm").ok().and_then(towpath_shm::limits::file_system).map(|(_, free)| free);
        if let Some(text) = free.and_then(warning) {
            crate::remark!("{text}");
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_little_is_worth_a_warning() {
        assert!(warning(64 << 20).is_none());
        let text = warning(300 << 10).expect("that is little");
        assert!(text.contains("300 KiB") && text.contains("--shm-size"));
    }
}
