//! Report at the program's end: lines on standard error, and a picture.
//!
//! The program writes them when it ends by `exit`, and otherwise its [reporter].
#![allow(unsafe_code)]

use core::ffi::{CStr, c_int};
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU64, Ordering};

use crate::named_place::{NamedPlace, keep_program};
use crate::text::{ReportLines, process};
use crate::{hot, passed, picture, reporter};

/// Process of the program that the user has named: it writes a report in any case, and
/// draws the picture.
static MAIN: AtomicU64 = AtomicU64::new(0);
/// The program is to write lines.
static HAS_LINES: AtomicBool = AtomicBool::new(false);
/// Lines, and the picture, are written.
static IS_WRITTEN: [AtomicBool; 2] = [const { AtomicBool::new(false) }; 2];
/// Name of the picture's file.
static PICTURE: AtomicPtr<libc::c_char> = AtomicPtr::new(core::ptr::null_mut());
/// Duplicate of standard error: programs close theirs before the report (`xz`, `sort`),
/// and their next file may get its number. -1: none.
static DUPLICATE: AtomicI32 = AtomicI32::new(-1);
/// Lowest number of the duplicate: programs count on the first ones.
const LOWEST_DUPLICATE: c_int = 200;
/// Device and file of standard error at the beginning.
static STANDARD_ERROR: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// Has lines written, and a picture drawn into a file, when the program ends.
pub fn at_exit(main: u64, has_lines: bool, picture: Option<&CStr>) {
    MAIN.store(main, Ordering::Relaxed);
    HAS_LINES.store(has_lines, Ordering::Relaxed);
    keep_standard_error();
    keep_program();
    hot::switch_on();
    if main == process()
        && let Some(descriptor) = standard_error()
    {
        // Before the others, so that it is ended after they have written.
        reporter::start(descriptor);
    }
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

/// Device and file of a descriptor, if it is open.
fn file_of(descriptor: c_int) -> Option<[u64; 2]> {
    let mut found = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: a place for the answer, which is filled in if the call succeeds.
    unsafe {
        let succeeds = libc::fstat(descriptor, found.as_mut_ptr()) == 0;
        succeeds.then(|| found.assume_init()).map(|found| [found.st_dev, found.st_ino])
    }
}

/// Keeps standard error for the report, as it is now.
fn keep_standard_error() {
    let Some(file) = file_of(2) else { return };
    for (place, part) in STANDARD_ERROR.iter().zip(file) {
        // Relaxed, here and below: before the program begins, and at its end.
        place.store(part, Ordering::Relaxed);
    }
    // SAFETY: makes a descriptor, or fails, if the program may not have so many.
    let duplicate = unsafe { libc::fcntl(2, libc::F_DUPFD_CLOEXEC, LOWEST_DUPLICATE) };
    DUPLICATE.store(duplicate, Ordering::Relaxed);
}

/// Descriptor of the standard error of the beginning, if there still is one.
fn standard_error() -> Option<c_int> {
    let kept = STANDARD_ERROR.each_ref().map(|part| part.load(Ordering::Relaxed));
    [DUPLICATE.load(Ordering::Relaxed), 2].into_iter().find(|descriptor| file_of(*descriptor) == Some(kept))
}

/// Writes lines and picture as far as the program has not written them.
pub fn write_all() {
    if HAS_LINES.load(Ordering::Relaxed) {
        write_lines();
    }
    if !PICTURE.load(Ordering::Relaxed).is_null() {
        draw();
    }
}

extern "C" fn write_lines() {
    if IS_WRITTEN[0].swap(true, Ordering::Relaxed) {
        return;
    }
    let Some(descriptor) = standard_error() else { return };
    let mut report = ReportLines::new(descriptor);
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
    if process() != MAIN.load(Ordering::Relaxed) || IS_WRITTEN[1].swap(true, Ordering::Relaxed) {
        return;
    }
    let file = PICTURE.load(Ordering::Relaxed);
    // SAFETY: the name that `at_exit` has kept; a descriptor that is this function's own.
    unsafe {
        let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC | libc::O_CLOEXEC;
        let descriptor = libc::open(file, flags, 0o644);
        if descriptor < 0 {
            if let Some(descriptor) = standard_error() {
                let remedy = "name a file in a folder that the program may write to";
                ReportLines::new(descriptor).line(format_args!("the picture can't be written: {remedy}"));
            }
            return;
        }
        picture::draw(descriptor);
        libc::close(descriptor);
    }
}
