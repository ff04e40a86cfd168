//! Report at the program's end: lines on standard error, and a picture.
#![allow(unsafe_code)]

use core::ffi::CStr;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use crate::named_place::NamedPlace;
use crate::text::{ReportLines, process, write};
use crate::{hot, passed, picture};

/// Process of the program that the user has named: it writes a report in any case, and
/// draws the picture.
static MAIN: AtomicU64 = AtomicU64::new(0);
/// Name of the picture's file.
static PICTURE: AtomicPtr<libc::c_char> = AtomicPtr::new(core::ptr::null_mut());

/// Has lines written, and a picture drawn into a file, when the program ends.
pub fn at_exit(main: u64, has_lines: bool, picture: Option<&CStr>) {
    MAIN.store(main, Ordering::Relaxed);
    hot::switch_on();
    // SAFETY: the library stays loaded until the end; a text that ends with zero, of which this
    // makes a copy.
    unsafe {
        if has_lines {
            libc::atexit(write_lines);
        }
        if let Some(file) = picture {
            PICTURE.store(libc::strdup(file.as_ptr()), Ordering::Relaxed);
            libc::atexit(draw);
        }
    }
}

extern "C" fn write_lines() {
    let mut report = ReportLines::new();
    hot::each_hot(|lock| {
        let place = NamedPlace::of(lock.address(), true);
        report.line(format_args!("lock {place}: {}", lock.waits()));
        if lock.holders().acquisitions > 0 {
            report.line(format_args!("    since the first wait: {}", lock.holders()));
        }
        lock.each_site(|address, figures| match address {
            0 => report.line(format_args!("    from other places: {figures}")),
            _ => report.line(format_args!("    from {}: {figures}", NamedPlace::of(address, false))),
        });
    });
    if hot::unplaced() > 0 {
        report.line(format_args!("other locks: {} waits", hot::unplaced()));
    }
    passed::report(&mut report);
    if report.lines == 0 && process() == MAIN.load(Ordering::Relaxed) {
        report.line(format_args!("no thread has waited for a lock, and nothing was passed to libc"));
    }
}

extern "C" fn draw() {
    if process() != MAIN.load(Ordering::Relaxed) {
        return;
    }
    let file = PICTURE.load(Ordering::Relaxed);
    // SAFETY: the name that `at_exit` has kept; a descriptor that is this function's own.
    unsafe {
        let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC | libc::O_CLOEXEC;
        let descriptor = libc::open(file, flags, 0o644);
        if descriptor < 0 {
            write(b"libtowpath-pthread: the picture can't be written: name a file in a folder that the program may write to\n");
            return;
        }
        picture::draw(descriptor);
        libc::close(descriptor);
    }
}
