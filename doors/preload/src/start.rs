//! Start of the library in a process: settings from the environment, which
//! `towpath preload` has made.
#![allow(unsafe_code)]

use core::ffi::CStr;

use towpath_sync::Policy;

use crate::text::give_up;
use crate::{barrier, chosen, layout, real, report, semaphore, trace, waiting};

/// Called by the loader, before the program's `main`. Other libraries' constructors may
/// have used locks already: until now, with the default settings.
#[used]
// SAFETY: the loader's list of functions without arguments that matter to this one.
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;

extern "C" fn start() {
    if !(layout::is_known() && barrier::is_known() && semaphore::is_known()) {
        give_up(c"objects of a known layout");
    }
    real::find_single_threaded();
    let policy = variable(c"TOWPATH_PRELOAD_WAITING")
        .and_then(|name| Policy::from_name(name.to_str().ok()?))
        .unwrap_or_default();
    if let Some(name) = variable(c"TOWPATH_PRELOAD_LOCK") {
        chosen::choose(name.to_str().unwrap_or_default());
    }
    let budget = number(c"TOWPATH_PRELOAD_BUDGET");
    waiting::set(policy, budget);
    // SAFETY: no preconditions.
    let process = unsafe { libc::getpid() } as u64;
    let main = number(c"TOWPATH_PRELOAD_MAIN").unwrap_or(process);
    let of_main = |name| variable(name).filter(|_| main == process);
    let (report, picture) = (variable(c"TOWPATH_PRELOAD_REPORT"), of_main(c"TOWPATH_PRELOAD_PICTURE"));
    if report.is_some() || picture.is_some() {
        report::at_exit(main, report.is_some(), picture);
    }
    if let Some(file) = of_main(c"TOWPATH_PRELOAD_TRACE") {
        trace::begin(file, number(c"TOWPATH_PRELOAD_EVENTS").unwrap_or(0));
    }
}

/// Number in an environment variable; 0 if it is none.
pub fn number(name: &CStr) -> Option<u64> {
    variable(name).map(|value| value.to_str().ok().and_then(|value| value.parse().ok()).unwrap_or(0))
}

/// Value of an environment variable that is set and not empty.
fn variable(name: &CStr) -> Option<&'static CStr> {
    // SAFETY: a name that ends with zero. The value stays while the environment is not changed: the
    // program does that later, if at all, and this is used at once.
    let value = unsafe {
        let value = libc::getenv(name.as_ptr());
        if value.is_null() {
            return None;
        }
        CStr::from_ptr(value)
    };
    (!value.is_empty()).then_some(value)
}
