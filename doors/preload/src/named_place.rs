//! Places in the program with the names that the loader knows.
#![allow(unsafe_code)]

use core::cell::UnsafeCell;
use core::ffi::CStr;
use core::fmt;
use core::mem::MaybeUninit;
use core::ptr::without_provenance;
use core::sync::atomic::{AtomicUsize, Ordering};

/// Maximum length of a file's name, in bytes.
const LONGEST: usize = 4096;

/// File of the program itself: the loader knows it by the first argument, which programs
/// overwrite to have a title.
struct ProgramFile {
    name: UnsafeCell<[u8; LONGEST]>,
    length: AtomicUsize,
    /// Address at which the file begins; 0: not known.
    begin: AtomicUsize,
}
// SAFETY: `keep_program` writes the name before the program begins; afterwards it is only read.
unsafe impl Sync for ProgramFile {}

static PROGRAM: ProgramFile = ProgramFile {
    name: UnsafeCell::new([0; LONGEST]),
    length: AtomicUsize::new(0),
    begin: AtomicUsize::new(0),
};

/// Keeps the name of the program's file. Called once, before the program begins.
pub fn keep_program() {
    // SAFETY: no preconditions; a name that ends with zero, and a place of this length, which no
    // other thread uses yet.
    unsafe {
        let Some((_, begin)) = loaded_at(libc::getauxval(libc::AT_ENTRY) as usize) else { return };
        let name = PROGRAM.name.get().cast();
        let length = libc::readlink(c"/proc/self/exe".as_ptr(), name, LONGEST);
        if let Ok(length @ 1..LONGEST) = usize::try_from(length) {
            // Relaxed, all: before the program begins, and at its end.
            PROGRAM.length.store(length, Ordering::Relaxed);
            PROGRAM.begin.store(begin, Ordering::Relaxed);
        }
    }
}

/// The name of the program's file, if it begins at this address.
fn program_at(begin: usize) -> Option<&'static str> {
    if begin == 0 || PROGRAM.begin.load(Ordering::Relaxed) != begin {
        return None;
    }
    // SAFETY: written before the program began.
    let name = unsafe { &*PROGRAM.name.get() };
    core::str::from_utf8(&name[..PROGRAM.length.load(Ordering::Relaxed)]).ok()
}

/// The loader's answer for an address, and where the file begins.
fn loaded_at(address: usize) -> Option<(libc::Dl_info, usize)> {
    let mut found = MaybeUninit::<libc::Dl_info>::uninit();
    // SAFETY: `dladdr` takes any address, and fills in the place if it succeeds.
    let found = unsafe {
        if libc::dladdr(without_provenance(address), found.as_mut_ptr()) == 0 {
            return None;
        }
        found.assume_init()
    };
    Some((found, found.dli_fbase.addr()))
}

/// Address in the program, with the names that the loader knows.
#[derive(Debug)]
pub struct NamedPlace {
    address: usize,
    /// True if an object lies there; or else it is code.
    is_object: bool,
    /// Name and address of the symbol; empty where there is none.
    symbol: (&'static str, usize),
    /// Name and beginning of the loaded file; empty where there is none.
    file: (&'static str, usize),
}

impl NamedPlace {
    /// The place at an address, of an object or else of code behind a call.
    pub fn of(address: usize, is_object: bool) -> NamedPlace {
        let text = |text: *const libc::c_char| {
            if text.is_null() {
                return "";
            }
            // SAFETY: a name in a loaded file, which ends with zero and stays until the end.
            unsafe { CStr::from_ptr(text) }.to_str().unwrap_or("")
        };
        // The address to which a call returns may be another function's beginning.
        let inside = if is_object { address } else { address - 1 };
        let Some((found, begin)) = loaded_at(inside) else {
            return NamedPlace { address, is_object, symbol: ("", 0), file: ("", 0) };
        };
        let symbol = (text(found.dli_sname), found.dli_saddr.addr());
        let file = program_at(begin).unwrap_or_else(|| text(found.dli_fname));
        NamedPlace { address, is_object, symbol, file: (file, begin) }
    }
}

impl fmt::Display for NamedPlace {
    /// Address, symbol and distance from it, file and place there, as debuggers take it.
    /// In the alternate form the file is without its folder.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NamedPlace { address, symbol: (symbol, at), file: (file, begin), .. } = *self;
        let file = if f.alternate() { file.rsplit('/').next().unwrap_or(file) } else { file };
        write!(f, "{address:#x}")?;
        if file.is_empty() {
            return f.write_str(if self.is_object { " (on the heap or a stack)" } else { " (in no file)" });
        }
        f.write_str(" (")?;
        if !symbol.is_empty() {
            write!(f, "{symbol}")?;
            if address != at {
                write!(f, "+{:#x}", address - at)?;
            }
            f.write_str(" in ")?;
        }
        write!(f, "{file}+{:#x})", address - begin)
    }
}
