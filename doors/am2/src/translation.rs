//! Translation tables: numbers by which a program knows its destinations.
#![allow(unsafe_code)]

use core::ffi::c_int;

use towpath_am::{Name, Tag};

use crate::call::{AmError, answered, put, refused};
use crate::endpoint::{AmEndpoint, AmName, answered_in_turn, answered_when_idle};

/// Number of entries of a new table.
const FIRST_ENTRIES: usize = 256;
/// Maximum number of entries.
pub const MAX_ENTRIES: usize = 1 << 16;

/// Facts about a table that the endpoint's own does not hold.
pub(crate) struct Translations {
    /// Number of entries that may be mapped.
    entries: usize,
    /// Name of each endpoint of the world, and the entry that leads to it.
    by_endpoint: Vec<(u64, usize)>,
}

impl Default for Translations {
    fn default() -> Self {
        Translations { entries: FIRST_ENTRIES, by_endpoint: Vec::new() }
    }
}

impl Translations {
    /// The entry that leads to a name.
    #[inline]
    pub fn entry_of(&self, name: Name) -> Option<usize> {
        let bits = name.to_bits();
        let &(known, entry) = self.by_endpoint.get((bits & 0xffff) as usize)?;
        (known == bits).then_some(entry)
    }

    fn note(&mut self, name: Name, entry: usize) {
        let at = (name.to_bits() & 0xffff) as usize;
        if self.by_endpoint.len() <= at {
            self.by_endpoint.resize(at + 1, (u64::MAX, 0));
        }
        self.by_endpoint[at] = (name.to_bits(), entry);
    }

    fn forget(&mut self, name: Name, entry: usize) {
        if self.entry_of(name) == Some(entry) {
            self.by_endpoint[(name.to_bits() & 0xffff) as usize] = (u64::MAX, 0);
        }
    }
}

/// The endpoint, and its entry of that number: mapped or not.
fn entry(endpoint: &AmEndpoint, index: c_int) -> Result<(usize, Option<(Name, Tag)>), AmError> {
    match usize::try_from(index) {
        Ok(index) if index < endpoint.table.borrow().entries => Ok((index, endpoint.endpoint.mapping(index))),
        _ => {
            let last = endpoint.table.borrow().entries as i64 - 1;
            let why = format!("the translation table has no entry {index}: the last one is {last}");
            Err(refused(AmError::BAD_ARG, &why))
        }
    }
}

fn mapped(endpoint: &AmEndpoint, index: c_int) -> Result<(usize, Name, Tag), AmError> {
    let (index, mapping) = entry(endpoint, index)?;
    let (name, tag) = mapping.ok_or_else(|| {
        refused(AmError::RESOURCE, &format!("translation table entry {index} leads nowhere"))
    })?;
    Ok((index, name, tag))
}

pub(crate) fn map(endpoint: &AmEndpoint, index: usize, name: Name, tag: Tag) -> Result<(), AmError> {
    endpoint.endpoint.map(index, name, tag)?;
    endpoint.table.borrow_mut().note(name, index);
    Ok(())
}

/// Makes an entry lead to an endpoint.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn AM_Map(
    endpoint: Option<&AmEndpoint>,
    index: c_int,
    name: AmName,
    tag: u64,
) -> c_int {
    answered_when_idle("AM_Map", endpoint, |endpoint| match entry(endpoint, index)? {
        (at, None) => map(endpoint, at, name.into(), Tag(tag)),
        _ => Err(refused(AmError::RESOURCE, &format!("translation table entry {index} is in use"))),
    })
}

/// Makes the first free entry lead to an endpoint.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn AM_MapAny(
    endpoint: Option<&AmEndpoint>,
    index: *mut c_int,
    name: AmName,
    tag: u64,
) -> c_int {
    answered_when_idle("AM_MapAny", endpoint, |endpoint| {
        let entries = endpoint.table.borrow().entries;
        let free = (0..entries).find(|&index| endpoint.endpoint.mapping(index).is_none());
        let free = free.ok_or_else(|| refused(AmError::RESOURCE, "the translation table is full"))?;
        // SAFETY: null, or a place for a number, says the header.
        unsafe { put(index, free as c_int) }?;
        map(endpoint, free, name.into(), Tag(tag))
    })
}

/// Frees an entry.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn AM_UnMap(endpoint: Option<&AmEndpoint>, index: c_int) -> c_int {
    answered_when_idle("AM_UnMap", endpoint, |endpoint| {
        let (index, name, _) = mapped(endpoint, index)?;
        endpoint.endpoint.unmap(index)?;
        endpoint.table.borrow_mut().forget(name, index);
        Ok(())
    })
}

/// Returns `AM_OK` if the entry is in use, otherwise `AM_ERR_RESOURCE`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn AM_GetTranslationInuse(endpoint: Option<&AmEndpoint>, index: c_int) -> c_int {
    answered_in_turn("AM_GetTranslationInuse", endpoint, |endpoint| {
        // No failure that a program wants to be told of.
        entry(endpoint, index)?.1.map(|_| ()).ok_or_else(|| refused(AmError::RESOURCE, ""))
    })
}

/// The tag of an entry.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn AM_GetTranslationTag(
    endpoint: Option<&AmEndpoint>,
    index: c_int,
    tag: *mut u64,
) -> c_int {
    answered_in_turn("AM_GetTranslationTag", endpoint, |endpoint| {
        // SAFETY: null, or a place for a tag, says the header.
        unsafe { put(tag, mapped(endpoint, index)?.2.0) }
    })
}

/// Sets the tag of an entry.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn AMMPI_SetTranslationTag(
    endpoint: Option<&AmEndpoint>,
    index: c_int,
    tag: u64,
) -> c_int {
    answered_when_idle("AMMPI_SetTranslationTag", endpoint, |endpoint| {
        let (index, name, _) = mapped(endpoint, index)?;
        map(endpoint, index, name, Tag(tag))
    })
}

/// The name of an entry.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn AM_GetTranslationName(
    endpoint: Option<&AmEndpoint>,
    index: c_int,
    name: *mut AmName,
) -> c_int {
    answered_in_turn("AM_GetTranslationName", endpoint, |endpoint| {
        // SAFETY: null, or a place for a name, says the header.
        unsafe { put(name, mapped(endpoint, index)?.1.into()) }
    })
}

/// Maximum number of entries of a table.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn AM_MaxNumTranslations(entries: *mut c_int) -> c_int {
    // SAFETY: null, or a place for a number, says the header.
    answered("AM_MaxNumTranslations", || unsafe { put(entries, MAX_ENTRIES as c_int) })
}

/// Number of entries of the table.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn AM_GetNumTranslations(endpoint: Option<&AmEndpoint>, entries: *mut c_int) -> c_int {
    answered_in_turn("AM_GetNumTranslations", endpoint, |endpoint| {
        let number = endpoint.table.borrow().entries;
        // SAFETY: null, or a place for a number, says the header.
        unsafe { put(entries, number as c_int) }
    })
}

/// Sets the number of entries of the table.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn AM_SetNumTranslations(endpoint: Option<&AmEndpoint>, entries: c_int) -> c_int {
    answered_when_idle("AM_SetNumTranslations", endpoint, |endpoint| {
        let entries = usize::try_from(entries).map_err(|_| {
            refused(
                AmError::BAD_ARG,
                &format!("a translation table has no {entries} entries: 0 to {MAX_ENTRIES}"),
            )
        })?;
        let present = endpoint.table.borrow().entries;
        if entries > MAX_ENTRIES || (entries..present).any(|at| endpoint.endpoint.mapping(at).is_some()) {
            return Err(refused(AmError::RESOURCE, "so many entries are too many, or some are in use"));
        }
        endpoint.table.borrow_mut().entries = entries;
        Ok(())
    })
}
