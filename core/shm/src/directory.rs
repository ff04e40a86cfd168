//! Named objects: lists of records, and a heap.
//!
//! ```text
//! buckets[hash of the name] ──> record ──> an older record ──> 0
//! heap   | record | object | record | object | …          used ^
//! ```
//!
//! A record (256 bytes) lies in the heap before its object, so objects and records need no memory
//! that was not asked for, and their number has no limit but the heap's size. There is a list for
//! about 512 bytes of heap, 65,536 at most: a name is found in a few steps among 65,536.
//!
//! **Looking up** walks one list. Each record names one with a smaller offset; a list that does not
//! is damaged, and no walk goes on for ever.
//!
//! **Creating** is done by one participant at a time, the one whose id is in `creating`; a
//! participant that finds it dead takes its place. A creator writes beyond `used`:
//!
//! | step | what | if it dies then |
//! | --- | --- | --- |
//! | 1 | zeroes the object's memory, prepares the object, fills in the record | the next creator uses the memory: no list leads there |
//! | 2 | stores the record's name into its bucket | the object exists; the next creator finds the record at `used` at the head of its list, and does step 3 |
//! | 3 | moves `used` behind the object | nothing is left to do |
//!
//! So nothing leaks.
//!
//! **Identity.** A record holds the text of the object's type ([`Object::describe`]) and a hash of
//! all of it, its size and its alignment. An object is opened only as the type that it was created
//! as.
//!
//! **Fields.** `creating`: by compare-and-swap. `used`, records beyond it, buckets: the creator.
//! Records before it: never written again.
//!
//! **Progress.** Looking up is wait-free: as many steps as the list is long. Creating is blocking.
#![allow(unsafe_code)]

use core::cell::Cell;
use core::fmt;
use core::mem::{align_of, size_of};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use towpath_machine::{Concurrent, Native, Object, TypeText};
use towpath_sync::{Attempt, Deadline, LockError, Policy, Wait};

use crate::creating::{CreationTurn, newest_record, publish_record};
use crate::inner::Inner;
use crate::layout::{ObjectRecord, TYPE_WORDS, code_of, record_of};
use crate::participant::ParticipantId;
use crate::segment::check_name;
use crate::table::ParticipantTable;
use crate::{Error, World};

/// A named object in a world's segment. Keeps the world mapped.
///
/// Dereferences to the object if that is [`Concurrent`]. A [`Mutex`](towpath_sync::Mutex) is locked
/// by [`Shared::lock`]; an element of an array is [`Shared::at`].
pub struct Shared<T: Object> {
    world: World,
    object: NonNull<T>,
}

// SAFETY: a reference to an object that is `Sync` (`Object`), together with a handle.
unsafe impl<T: Object> Send for Shared<T> {}
// SAFETY: it lends shared references only, to an object that is `Sync` (`Object`).
unsafe impl<T: Object> Sync for Shared<T> {}

impl<T: Object> fmt::Debug for Shared<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("type", &format_args!("{}", TypeText::<T>::default()))
            .finish_non_exhaustive()
    }
}

impl<T: Object> Shared<T> {
    fn new(world: World, object: NonNull<T>) -> Self {
        if T::NAMES_USERS {
            let inner = world.inner();
            inner.local.open_handles().open(inner.cpu());
        }
        Shared { world, object }
    }

    /// The world in which the object lies.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// # let total = world.shared::<std::sync::atomic::AtomicU64>("total", |_| ())?;
    /// assert_eq!(total.world().rank(), 0);
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn world(&self) -> &World {
        &self.world
    }

    /// The object itself, for the rooms that know how to use one that is not
    /// [`Concurrent`].
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// # let total = world.shared::<std::sync::atomic::AtomicU64>("total", |_| ())?;
    /// println!("at {:?}", total.as_ptr());
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn as_ptr(&self) -> NonNull<T> {
        self.object
    }
}

impl<T: Object> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Shared::new(self.world.clone(), self.object)
    }
}

impl<T: Object> Drop for Shared<T> {
    fn drop(&mut self) {
        if T::NAMES_USERS {
            let inner = self.world.inner();
            inner.local.open_handles().close(inner.cpu());
        }
    }
}

impl<T: Object + Concurrent> core::ops::Deref for Shared<T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: within the heap and aligned (checked by `place`), mapped as long as the world's
        // handle lives, any bits are a `T`.
        unsafe { self.object.as_ref() }
    }
}

impl<T: Object, const N: usize> Shared<[T; N]> {
    /// An element of the array.
    ///
    /// # Panics
    ///
    /// If `index` is not below `N`.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
    ///
    /// let totals = world.shared::<[AtomicU64; 4]>("totals", |_| ())?;
    /// totals.at(3).fetch_add(1, Relaxed);
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn at(&self, index: usize) -> Shared<T> {
        assert!(index < N, "element {index} of an array of {N}");
        // SAFETY: within the array (just checked), which lies within the mapping.
        let element = unsafe { self.object.cast::<T>().add(index) };
        Shared::new(self.world.clone(), element)
    }
}

/// Size, alignment and text of a type of objects.
///
/// Objects are found and made through it, so that the code for that is compiled once.
struct ObjectForm<'a> {
    /// Text of the type, kept beside the object.
    text: &'a str,
    bytes: u64,
    align: usize,
}

impl ObjectForm<'_> {
    fn of<T>(text: &str) -> ObjectForm<'_> {
        ObjectForm { text, bytes: size_of::<T>() as u64, align: align_of::<T>() }
    }

    /// Alignment in the heap.
    fn heap_align(&self) -> u64 {
        self.align.max(64) as u64
    }
}

/// A place in the heap for an object and the bytes behind it, and the number of those.
type Placed = (NonNull<u8>, u64);

impl World {
    /// The caller as a participant that waits: its number, unique among all threads of
    /// the world, and its wait.
    ///
    /// For the rooms that lend primitives to programs in other languages.
    ///
    /// # Errors
    ///
    /// [`LockError::NotEntered`].
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// assert!(world.participation().is_err(), "this process has not entered");
    /// world.enter(Some(0))?;
    /// assert!(world.participation().is_ok());
    /// # Ok::<(), towpath::Error>(())
    /// ```
    #[inline]
    pub fn participation(&self) -> Result<(Native, Wait<'_>), LockError> {
        let me = self.entered().ok_or(LockError::NotEntered)?;
        Ok((Native::of_participant(me.index), self.adaptive_wait()))
    }

    /// Tries an operation of the caller once, for event loops.
    pub(crate) fn attempt<R>(
        &self,
        act: impl FnOnce(&Native, &Wait<'_>, Deadline) -> Result<R, LockError>,
    ) -> Attempt<Result<R, LockError>> {
        match self.participation() {
            Ok((cpu, wait)) => Attempt::of(&wait, LockError::is_timeout, |wait, turn| act(&cpu, wait, turn)),
            Err(error) => Attempt::Done(Err(error)),
        }
    }

    /// The way in which a process of the world waits.
    #[inline]
    pub(crate) fn adaptive_wait(&self) -> Wait<'_> {
        Wait { policy: Policy::Adaptive, around: self.surroundings(), budget: self.switch_cost() }
    }
}

/// Checks that an object can have the name.
fn check_object_name(name: &str) -> Result<(), Error> {
    check_name(name, 32, "it is too long: an object's has up to 32 letters")
}

type Name = [u64; 4];

fn name_words(name: &str) -> Name {
    let mut bytes = [0u8; 32];
    bytes[..name.len()].copy_from_slice(name.as_bytes());
    core::array::from_fn(|i| u64::from_le_bytes(core::array::from_fn(|j| bytes[8 * i + j])))
}

fn text_words(text: &str) -> [u64; TYPE_WORDS] {
    let byte = |i| text.as_bytes().get(i).copied().unwrap_or(0);
    core::array::from_fn(|i| u64::from_le_bytes(core::array::from_fn(|j| byte(8 * i + j))))
}

/// Text of a record's type, as far as it fits there.
///
/// Another process may have written anything.
fn type_text(record: &ObjectRecord) -> String {
    // Relaxed: as in `shared`.
    let mut bytes: Vec<u8> =
        record.type_text.iter().flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes()).collect();
    let full = bytes.last() != Some(&0);
    bytes.truncate(bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len()));
    let text = String::from_utf8_lossy(&bytes).into_owned();
    if full { text + " …" } else { text }
}

/// FNV-1a, of which only that it is the same in all programs matters.
pub(crate) fn hash_of(bytes: impl IntoIterator<Item = u8>) -> u64 {
    let mix = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    bytes.into_iter().fold(0xcbf2_9ce4_8422_2325, mix)
}

thread_local! {
    static PREPARING: Cell<bool> = const { Cell::new(false) };
}

/// Maximum time to wait for a creator that is alive: it may be stopped, or the segment
/// damaged.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time between two looks.
const NAP: Duration = Duration::from_micros(100);

/// The permission to create. Given back when dropped, also by a panic in `prepare`.
struct Creating<'a>(CreationTurn<'a, Native>);

impl Drop for Creating<'_> {
    fn drop(&mut self) {
        PREPARING.set(false);
        self.0.give();
    }
}

impl World {
    /// Opens the object of that name; creates it if there is none, zeroed, then prepared.
    ///
    /// Names are as those of worlds, up to 32 bytes. All objects of a world share
    /// [`WorldSpec::object_bytes`](crate::WorldSpec::object_bytes); they live as long as the world.
    ///
    /// # Errors
    ///
    /// [`Error::NotEntered`], [`Error::InvalidName`], [`Error::OtherType`] (another kind, version,
    /// parameter, size or alignment), [`Error::DirectoryFull`], [`Error::NestedPreparation`],
    /// [`Error::CreatorBusy`], [`Error::Damaged`].
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
    ///
    /// let total = world.shared::<AtomicU64>("total", |_| ())?; // found by name, or made
    /// total.fetch_add(1, Relaxed);
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn shared<T: Object>(&self, name: &str, prepare: impl FnOnce(&T)) -> Result<Shared<T>, Error> {
        // SAFETY: placed, aligned and mapped (checked by `place`); any bits are a `T`. No other
        // thread knows the object yet.
        let prepare = |shared: &Shared<T>| prepare(unsafe { shared.object.as_ref() });
        self.object(name, 0, |tail| tail == 0, prepare).map(|(shared, _)| shared)
    }

    /// Opens the object of that name, which another participant has made.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchObject`]; [`Error::NotEntered`], [`Error::InvalidName`],
    /// [`Error::OtherType`], [`Error::Damaged`].
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// use towpath::{Mutex, WorldError};
    ///
    /// let found = world.find::<Mutex<u64>>("balance");
    /// assert!(matches!(found, Err(WorldError::NoSuchObject { .. })));
    /// let made = world.mutex("balance", 100u64)?;
    /// assert_eq!(*world.find::<Mutex<u64>>("balance")?.lock()?, 100);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn find<T: Object>(&self, name: &str) -> Result<Shared<T>, Error> {
        check_object_name(name)?;
        self.inner().me()?;
        match self.inner().lookup(&name_words(name))? {
            Some(record) => {
                let text = TypeText::<T>::default().to_string();
                let (object, _) =
                    self.opened(record, name, &ObjectForm::of::<T>(&text), 0, &|tail| tail == 0)?;
                Ok(Shared::new(self.clone(), object.cast()))
            }
            None => Err(Error::NoSuchObject { name: name.to_owned() }),
        }
    }

    /// Opens the object of that name, behind which so many bytes lie as `fits` accepts;
    /// creates it with `tail` bytes if there is none. Returns it, and the number of those bytes.
    pub(crate) fn object<T: Object>(
        &self,
        name: &str,
        tail: u64,
        fits: impl Fn(u64) -> bool,
        prepare: impl FnOnce(&Shared<T>),
    ) -> Result<(Shared<T>, u64), Error> {
        self.object_as(name, &TypeText::<T>::default().to_string(), tail, fits, prepare)
    }

    /// The object as by [`World::object`], of a type whose text is known when the program
    /// runs.
    pub(crate) fn object_as<T: Object>(
        &self,
        name: &str,
        text: &str,
        tail: u64,
        fits: impl Fn(u64) -> bool,
        prepare: impl FnOnce(&Shared<T>),
    ) -> Result<(Shared<T>, u64), Error> {
        let shared = |object: NonNull<u8>| Shared::new(self.clone(), object.cast());
        let mut prepare = Some(prepare);
        let prepare = &mut |object| {
            if let Some(prepare) = prepare.take() {
                prepare(&shared(object));
            }
        };
        let (object, tail) = self.find_or_make(name, &ObjectForm::of::<T>(text), tail, &fits, prepare)?;
        Ok((shared(object), tail))
    }

    /// The place of an object as by [`World::object`].
    ///
    /// `prepare` is called once if it is new.
    fn find_or_make(
        &self,
        name: &str,
        form: &ObjectForm<'_>,
        tail: u64,
        fits: &dyn Fn(u64) -> bool,
        prepare: &mut dyn FnMut(NonNull<u8>),
    ) -> Result<Placed, Error> {
        check_object_name(name)?;
        let inner = self.inner();
        let me = inner.me()?;
        let words = name_words(name);
        let (text, align) = (form.text, form.heap_align());
        let bytes = form.bytes.saturating_add(tail);
        if let Some(record) = inner.lookup(&words)? {
            return self.opened(record, name, form, tail, fits);
        }
        if PREPARING.get() {
            return Err(Error::NestedPreparation { name: name.to_owned() });
        }
        let creating =
            inner.may_create(me).map_err(|rank| Error::CreatorBusy { name: name.to_owned(), rank })?;
        // Another participant may have been faster.
        if let Some(record) = inner.lookup(&words)? {
            return self.opened(record, name, form, tail, fits);
        }
        let used = inner.settle();
        let heap_bytes = inner.segment.geometry().heap_bytes();
        let full = |wanted: u64| Error::DirectoryFull {
            name: name.to_owned(),
            wanted,
            free: heap_bytes - used,
            bytes: heap_bytes,
        };
        let record_bytes = size_of::<ObjectRecord>() as u64;
        let offset = (used + record_bytes).next_multiple_of(align);
        let end = offset.checked_add(bytes).and_then(|end| end.checked_next_multiple_of(64));
        let Some(end) = end.filter(|&end| align <= inner.segment.heap_align() && end <= heap_bytes) else {
            return Err(full(bytes.saturating_add(record_bytes)));
        };
        let record = inner.segment.record(used).ok_or_else(|| full(bytes.saturating_add(record_bytes)))?;
        let object = self.place(offset, form, tail)?;
        // SAFETY: within the heap (`end`), at a multiple of 64, mapped as long as `self` lives;
        // atomics are plain. No record refers to them, and only one participant creates. (If the
        // segment is damaged others may use them: therefore atomically.)
        let raw = unsafe {
            let first = object.cast::<AtomicU64>();
            core::slice::from_raw_parts(first.as_ptr(), ((end - offset) / 8) as usize)
        };
        for word in raw {
            // Relaxed: published by (N3).
            word.store(0, Ordering::Relaxed);
        }
        prepare(object);
        // Relaxed, all: published by (N3).
        record.offset.store(offset, Ordering::Relaxed);
        record.bytes.store(bytes, Ordering::Relaxed);
        record.align.store(align, Ordering::Relaxed);
        record.type_hash.store(hash_of(text.bytes()), Ordering::Relaxed);
        for (to, from) in record.name.iter().zip(words).chain(record.type_text.iter().zip(text_words(text))) {
            to.store(from, Ordering::Relaxed);
        }
        let bucket = inner.bucket(&words);
        record.next.store(bucket.load(Ordering::Relaxed), Ordering::Relaxed);
        publish_record(inner.cpu(), bucket, code_of(used));
        // Relaxed: for the next creator, to which the turn hands it.
        inner.control().directory.used.store(end, Ordering::Relaxed);
        drop(creating);
        Ok((object, tail))
    }

    /// The place of a record's object.
    ///
    /// `fits` accepts the number of bytes behind it; `usual`: that of a new one, for the error.
    fn opened(
        &self,
        record: &ObjectRecord,
        name: &str,
        form: &ObjectForm<'_>,
        usual: u64,
        fits: &dyn Fn(u64) -> bool,
    ) -> Result<Placed, Error> {
        let (text, head, align) = (form.text, form.bytes, form.heap_align());
        // Relaxed, all: written before the record's name was stored (N3), which was read with
        // Acquire (N4).
        let get = |word: &AtomicU64| word.load(Ordering::Relaxed);
        let is = (get(&record.bytes), get(&record.align));
        let tail = is.0.checked_sub(head).filter(|&tail| fits(tail));
        let is_type = is.1 == align && get(&record.type_hash) == hash_of(text.bytes());
        let Some(tail) = tail.filter(|_| is_type) else {
            let full = |text: &str, (bytes, align)| format!("{text} of {bytes} bytes, aligned to {align}");
            return Err(Error::OtherType {
                name: name.to_owned(),
                found: full(&type_text(record), is),
                expected: full(text, (head.saturating_add(usual), align)),
            });
        };
        Ok((self.place(get(&record.offset), form, tail)?, tail))
    }

    /// The place of an object at an offset in the heap, which may be nonsense.
    ///
    /// `tail` bytes lie behind it.
    fn place(&self, offset: u64, form: &ObjectForm<'_>, tail: u64) -> Result<NonNull<u8>, Error> {
        let (len, align) = (form.bytes.saturating_add(tail), form.align);
        let parts = &self.inner().segment;
        let object = parts.heap_at(offset, len, 1).ok_or(Error::OutOfBounds {
            offset,
            len,
            available: parts.geometry().heap_bytes(),
        })?;
        if align as u64 > parts.heap_align() || !offset.is_multiple_of(align as u64) {
            return Err(Error::Misaligned { offset, align });
        }
        Ok(object)
    }
}

impl Inner {
    /// The head of the list in which a name is, if it exists.
    fn bucket(&self, name: &Name) -> &AtomicU64 {
        let hash = hash_of(name.iter().flat_map(|word| word.to_le_bytes()));
        let buckets = self.segment.buckets();
        // A power of two of them: the lower bits, into which the upper ones are folded.
        &buckets[(hash ^ hash >> 32) as usize & (buckets.len() - 1)]
    }

    fn lookup(&self, name: &Name) -> Result<Option<&ObjectRecord>, Error> {
        let mut code = newest_record(self.cpu(), self.bucket(name));
        let mut last = u64::MAX;
        while code != 0 {
            let damaged = || Error::Damaged {
                what: "the list of named objects",
                found: code,
                expected: last.saturating_sub(1),
            };
            // Each is older than the one before: a list without end is none.
            let record = self.segment.record(record_of(code)).filter(|_| code < last).ok_or_else(damaged)?;
            // Relaxed, all: see (N4) in `creating.rs`.
            if record.name.iter().zip(name).all(|(word, &wanted)| word.load(Ordering::Relaxed) == wanted) {
                return Ok(Some(record));
            }
            last = code;
            code = record.next.load(Ordering::Relaxed);
        }
        Ok(None)
    }

    /// Moves `used` behind a record that a dead creator has published. Only the creator.
    ///
    /// Returns how much of the heap is in use.
    fn settle(&self) -> u64 {
        let heap_bytes = self.segment.geometry().heap_bytes();
        let word = &self.control().directory.used;
        // A number that makes no sense: the heap counts as full.
        let sane = |used: u64| {
            used.checked_next_multiple_of(64).filter(|&used| used <= heap_bytes).unwrap_or(heap_bytes)
        };
        // Relaxed: the creator's; handed over with the turn. After a death it may be an old value
        // of the dead, before (N3): then the record there is a complete one.
        let used = sane(word.load(Ordering::Relaxed));
        let Some(record) = self.segment.record(used) else { return used };
        // Relaxed, all: what matters is compared with the bucket. No list names a record at `used`
        // but that of a complete record.
        let get = |word: &AtomicU64| word.load(Ordering::Relaxed);
        let name: Name = core::array::from_fn(|i| get(&record.name[i]));
        if newest_record(self.cpu(), self.bucket(&name)) != code_of(used) {
            return used;
        }
        let end = sane(get(&record.offset).saturating_add(get(&record.bytes))).max(used);
        word.store(end, Ordering::Relaxed);
        end
    }

    fn may_create(&self, me: ParticipantId) -> Result<Creating<'_>, u32> {
        let turn = CreationTurn {
            cpu: self.cpu(),
            creating: &self.control().directory.creating,
            among_threads: &self.local.creating,
            me: me.to_bits(),
        };
        let since = Instant::now();
        let nap = || {
            let is_patient = since.elapsed() <= PATIENCE;
            if is_patient {
                std::thread::sleep(NAP);
            }
            is_patient
        };
        let is_alive = |creator| self.is_alive(ParticipantId::from_bits(creator));
        turn.take(is_alive, nap).map_err(|creator| ParticipantId::from_bits(creator).index)?;
        PREPARING.set(true);
        Ok(Creating(turn))
    }
}
