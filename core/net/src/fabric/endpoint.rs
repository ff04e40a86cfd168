//! An endpoint of libfabric, and the objects that it needs: one set for each link.
//!
//! Messages lie in *slots*, which this side allocates. A slot belongs to libfabric from the call
//! that posts it to its completion, and to one of the link's halves otherwise.

use std::ffi::{c_int, c_void};
use std::io;
use std::net::IpAddr;
use std::os::fd::RawFd;
use std::ptr::{NonNull, null, null_mut};
use std::sync::OnceLock;

use super::abi::*;
use super::library::{FabricLibrary, load};
use super::objects::{FabricObject, InfoList, check, find};

/// Number of bytes of a slot's message: a record's number and its ciphertext.
pub const MESSAGE: usize = 8 + crate::frame::MAX_RECORD;
/// Number of words of a slot: those of libfabric's context, and those of the message.
const SLOT_WORDS: usize = CONTEXT_WORDS + MESSAGE.div_ceil(8);
/// Number of words of `struct fi_context2`.
const CONTEXT_WORDS: usize = 8;
/// Maximum number of slots of each direction.
const SLOTS: usize = 32;
/// Maximum number of bytes of an endpoint's address.
const MAX_ADDRESS: usize = 512;
/// Slots of one direction.
#[derive(Debug)]
struct EndpointSlots {
    words: NonNull<[u64; SLOT_WORDS]>,
    count: usize,
    /// Registration of the memory, if the provider needs one.
    memory: Option<FabricObject<FidMemory>>,
}

impl EndpointSlots {
    fn new(count: usize) -> EndpointSlots {
        let words = Box::into_raw(vec![[0u64; SLOT_WORDS]; count].into_boxed_slice());
        EndpointSlots { words: NonNull::new(words).expect("a box").cast(), count, memory: None }
    }

    /// First byte of a slot's context, which is the slot itself.
    fn context(&self, slot: usize) -> *mut c_void {
        assert!(slot < self.count);
        // SAFETY: within the allocation.
        unsafe { self.words.as_ptr().add(slot).cast() }
    }

    /// First byte of a slot's message.
    fn message(&self, slot: usize) -> *mut u8 {
        // SAFETY: within the slot.
        unsafe { self.context(slot).cast::<u64>().add(CONTEXT_WORDS).cast() }
    }

    /// Slot of a context that libfabric names.
    fn of_context(&self, context: *mut c_void) -> Option<usize> {
        let offset = (context as usize).checked_sub(self.words.as_ptr() as usize)?;
        let slot = offset / size_of::<[u64; SLOT_WORDS]>();
        (offset % size_of::<[u64; SLOT_WORDS]>() == 0 && slot < self.count).then_some(slot)
    }

    fn description(&self) -> *mut c_void {
        // SAFETY: the registration lives as long as `self`.
        self.memory.as_ref().map_or(null_mut(), |memory| unsafe { memory.0.as_ref().mem_desc })
    }

    /// Registers the memory.
    fn register(
        &mut self,
        library: &FabricLibrary,
        domain: &FabricObject<FidDomain>,
        access: u64,
        key: u64,
    ) -> Result<(), String> {
        let bytes = self.count * size_of::<[u64; SLOT_WORDS]>();
        // SAFETY: the domain is open, and the memory lives longer than its registration.
        self.memory = Some(unsafe {
            let reg = (*domain.0.as_ref().mr).reg;
            let memory = self.words.as_ptr().cast();
            FabricObject::open(library, "registering memory", |made| {
                reg(domain.fid(), memory, bytes, access, 0, key, 0, made, null_mut())
            })?
        });
        Ok(())
    }
}

impl Drop for EndpointSlots {
    fn drop(&mut self) {
        self.memory = None;
        let words = std::ptr::slice_from_raw_parts_mut(self.words.as_ptr(), self.count);
        // SAFETY: made by `Box::into_raw` of so many slots; the endpoint, which could still write
        // into them, is closed before (`FabricEndpoint`).
        drop(unsafe { Box::from_raw(words) });
    }
}

/// Queue of completions, and the descriptor that becomes readable with them.
#[derive(Debug)]
struct Completions {
    queue: FabricObject<FidCq>,
    descriptor: Option<RawFd>,
}

/// Direction of a half of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Half {
    Send,
    Receive,
}

/// Completed operation.
#[derive(Debug)]
pub struct Completed {
    pub slot: usize,
    /// Number of bytes of a message that was received; 0 if it did not fit into a slot.
    pub length: usize,
}

/// Endpoint of one link.
///
/// Fields are dropped in their order: an object before those on which it depends.
#[derive(Debug)]
pub struct FabricEndpoint {
    endpoint: FabricObject<FidEndpoint>,
    sent: Completions,
    received: Completions,
    addresses: FabricObject<FidAddresses>,
    sending: EndpointSlots,
    receiving: EndpointSlots,
    _domain: FabricObject<FidDomain>,
    fabric: FabricObject<FidFabric>,
    _info: InfoList,
    library: &'static FabricLibrary,
    /// The peer's place among the addresses.
    peer: OnceLock<u64>,
}

// SAFETY: the domain was opened with `FI_THREAD_SAFE`: any thread may call anything.
unsafe impl Send for FabricEndpoint {}
// SAFETY: the domain was opened with `FI_THREAD_SAFE`; a slot's bytes are reached only through the
// half that has the slot.
unsafe impl Sync for FabricEndpoint {}

impl FabricEndpoint {
    /// Opens an endpoint at an address of this host, by the provider of this name.
    pub fn open(provider: &str, at: IpAddr) -> Result<FabricEndpoint, String> {
        let library = load()?;
        let info = find(library, provider, at)?;
        // SAFETY: libfabric's contract, point by point: objects are opened with the attributes of
        // `info`, which lives as long as they do; each is closed before its parents (the order of
        // the fields, and of these variables if one fails); tables are those of open objects.
        unsafe {
            let of = info.0.as_ref();
            let fabric = FabricObject::open(library, "opening the fabric", |made| {
                (library.fabric)(of.fabric_attr, made, null_mut())
            })?;
            let domain = FabricObject::open(library, "opening the domain", |made| {
                ((*fabric.0.as_ref().ops).domain)(fabric.0.as_ptr(), info.0.as_ptr(), made, null_mut())
            })?;
            let mut sending = EndpointSlots::new((*of.tx_attr).size.clamp(1, SLOTS));
            let mut receiving = EndpointSlots::new((*of.rx_attr).size.clamp(1, SLOTS));
            let modes = (*of.domain_attr).mr_mode;
            if modes & FI_MR_LOCAL != 0 {
                if modes & FI_MR_ENDPOINT != 0 {
                    return Err(format!("{provider} registers local memory with endpoints; not supported"));
                }
                sending.register(library, &domain, FI_SEND, 1)?;
                receiving.register(library, &domain, FI_RECV, 2)?;
            }
            let mut attributes = AddressAttributes {
                kind: (*of.domain_attr).av_type,
                rx_ctx_bits: 0,
                count: 1,
                ep_per_node: 0,
                name: null(),
                map_addr: null_mut(),
                flags: 0,
            };
            let addresses = FabricObject::open(library, "opening the address vector", |made| {
                ((*domain.0.as_ref().ops).av_open)(domain.0.as_ptr(), &mut attributes, made, null_mut())
            })?;
            let sent = Completions::open(library, &domain, sending.count)?;
            let received = Completions::open(library, &domain, receiving.count)?;
            let endpoint = FabricObject::open(library, "opening the endpoint", |made| {
                ((*domain.0.as_ref().ops).endpoint)(domain.0.as_ptr(), info.0.as_ptr(), made, null_mut())
            })?;
            let ops = &*(*endpoint.fid()).ops;
            let binds = [(addresses.fid(), 0), (sent.queue.fid(), FI_SEND), (received.queue.fid(), FI_RECV)];
            for (fid, flags) in binds {
                check(library, "binding the endpoint", (ops.bind)(endpoint.fid(), fid, flags))?;
            }
            check(library, "enabling the endpoint", (ops.control)(endpoint.fid(), FI_ENABLE, null_mut()))?;
            Ok(FabricEndpoint {
                endpoint,
                sent,
                received,
                addresses,
                sending,
                receiving,
                _domain: domain,
                fabric,
                _info: info,
                library,
                peer: OnceLock::new(),
            })
        }
    }

    /// Address by which a peer reaches the endpoint, in the provider's format.
    pub fn address(&self) -> Result<Vec<u8>, String> {
        let mut bytes = vec![0u8; MAX_ADDRESS];
        let mut length = bytes.len();
        // SAFETY: the endpoint is open; there is room for `length` bytes.
        let result = unsafe {
            let getname = (*self.endpoint.0.as_ref().cm).getname;
            getname(self.endpoint.fid(), bytes.as_mut_ptr().cast(), &mut length)
        };
        check(self.library, "the endpoint's address", result)?;
        bytes.truncate(length);
        Ok(bytes)
    }

    /// Names the peer, once.
    pub fn connect(&self, address: &[u8]) -> Result<(), String> {
        // Providers read as many bytes as their format has.
        if address.len() != self.address()?.len() {
            return Err("the other host's address is of another kind".into());
        }
        let mut place = FI_ADDR_UNSPEC;
        // SAFETY: the address vector is open; the address has the length of the provider's format.
        let inserted = unsafe {
            let insert = (*self.addresses.0.as_ref().ops).insert;
            insert(self.addresses.0.as_ptr(), address.as_ptr().cast(), 1, &mut place, 0, null_mut())
        };
        if inserted != 1 || self.peer.set(place).is_err() {
            return Err("libfabric does not take the other host's address".into());
        }
        Ok(())
    }

    fn slots(&self, half: Half) -> &EndpointSlots {
        match half {
            Half::Send => &self.sending,
            Half::Receive => &self.receiving,
        }
    }

    fn completions(&self, half: Half) -> &Completions {
        match half {
            Half::Send => &self.sent,
            Half::Receive => &self.received,
        }
    }

    /// Number of slots of a half.
    pub fn slot_count(&self, half: Half) -> usize {
        self.slots(half).count
    }

    /// First byte of a slot's [`MESSAGE`] bytes.
    ///
    /// The half may use them while it has the slot.
    pub fn message(&self, half: Half, slot: usize) -> *mut u8 {
        self.slots(half).message(slot)
    }

    /// Gives libfabric a slot: with so many bytes to send, or to receive into.
    ///
    /// `false`: it takes none now.
    ///
    /// # Safety
    ///
    /// The caller has the slot, and does not touch it before its completion, unless the result is
    /// `false`.
    pub unsafe fn post(&self, half: Half, slot: usize, length: usize) -> io::Result<bool> {
        let slots = self.slots(half);
        let (endpoint, message, context) =
            (self.endpoint.0.as_ptr(), slots.message(slot), slots.context(slot));
        // SAFETY: the endpoint is open; the slot has room for a message, is the operation's until
        // it completes, and lives longer than the endpoint.
        let result = unsafe {
            let ops = &*(*endpoint).msg;
            match half {
                Half::Send => {
                    let Some(&peer) = self.peer.get() else {
                        return Err(io::ErrorKind::NotConnected.into());
                    };
                    assert!(length <= MESSAGE);
                    (ops.send)(endpoint, message.cast(), length, slots.description(), peer, context)
                }
                Half::Receive => (ops.recv)(
                    endpoint,
                    message.cast(),
                    MESSAGE,
                    slots.description(),
                    FI_ADDR_UNSPEC,
                    context,
                ),
            }
        };
        match result {
            0 => Ok(true),
            error if error == -FI_EAGAIN => Ok(false),
            error => Err(self.error(-error as c_int)),
        }
    }

    /// Takes the next completion of a half. Any call moves the provider's work on.
    pub fn completed(&self, half: Half) -> io::Result<Option<Completed>> {
        let queue = self.completions(half).queue.0;
        let mut entry = CompletionEntry { op_context: null_mut(), flags: 0, len: 0 };
        // SAFETY: the queue is open, and its entries have this format.
        let result = unsafe {
            let read = (*queue.as_ref().ops).read;
            read(queue.as_ptr(), (&raw mut entry).cast(), 1)
        };
        match result {
            1 => self.completed_slot(half, entry.op_context, entry.len).map(Some),
            0 => Ok(None),
            error if error == -FI_EAGAIN => Ok(None),
            error if error == -FI_EAVAIL => self.failed(half),
            error => Err(self.error(-error as c_int)),
        }
    }

    fn completed_slot(&self, half: Half, context: *mut c_void, length: usize) -> io::Result<Completed> {
        let slot = self.slots(half).of_context(context);
        let slot = slot.ok_or_else(|| io::Error::other("libfabric completed an unknown operation"))?;
        Ok(Completed { slot, length: length.min(MESSAGE) })
    }

    /// Takes a completion that is an error.
    fn failed(&self, half: Half) -> io::Result<Option<Completed>> {
        let queue = self.completions(half).queue.0;
        let mut error = CompletionError {
            op_context: null_mut(),
            flags: 0,
            len: 0,
            buf: null_mut(),
            data: 0,
            tag: 0,
            olen: 0,
            err: 0,
            prov_errno: 0,
            err_data: null_mut(),
            err_data_size: 0,
            room: [0; 8],
        };
        // SAFETY: the queue is open, and there is room for an entry of any version.
        let result = unsafe {
            let readerr = (*queue.as_ref().ops).readerr;
            readerr(queue.as_ptr(), &mut error, 0)
        };
        match result {
            // No peer of ours sends so much.
            1 if error.err == FI_ETRUNC => self.completed_slot(half, error.op_context, 0).map(Some),
            1 => Err(self.error(error.err)),
            _ => Ok(None),
        }
    }

    /// Descriptor that becomes readable with completions of a half.
    ///
    /// `None`: the provider has none, or there is something to do now (`true`).
    pub fn descriptor(&self, half: Half) -> (Option<RawFd>, bool) {
        let completions = self.completions(half);
        let Some(descriptor) = completions.descriptor else { return (None, false) };
        let mut fid = completions.queue.fid();
        let fabric = self.fabric.0;
        // SAFETY: both objects are open; one object is named.
        let busy = unsafe { ((*fabric.as_ref().ops).trywait)(fabric.as_ptr(), &mut fid, 1) } != 0;
        if busy { (None, true) } else { (Some(descriptor), false) }
    }

    fn error(&self, error: c_int) -> io::Error {
        io::Error::other(format!("libfabric: {}", self.library.text_of(error)))
    }
}

impl Completions {
    /// Opens a queue, with a descriptor where the provider has them.
    ///
    /// # Safety
    ///
    /// The domain outlives it.
    unsafe fn open(
        library: &FabricLibrary,
        domain: &FabricObject<FidDomain>,
        size: usize,
    ) -> Result<Completions, String> {
        let open = |wait_obj| {
            let mut attributes = CompletionAttributes {
                size,
                flags: 0,
                format: FI_CQ_FORMAT_MSG,
                wait_obj,
                signaling_vector: 0,
                wait_cond: 0,
                wait_set: null_mut(),
            };
            // SAFETY: the domain is open, and outlives the queue.
            unsafe {
                FabricObject::<FidCq>::open(library, "opening a completion queue", |made| {
                    ((*domain.0.as_ref().ops).cq_open)(domain.0.as_ptr(), &mut attributes, made, null_mut())
                })
            }
        };
        let Ok(queue) = open(FI_WAIT_FD) else {
            return Ok(Completions { queue: open(FI_WAIT_NONE)?, descriptor: None });
        };
        let mut descriptor: c_int = -1;
        // SAFETY: the queue was opened with a descriptor, which the call stores.
        let result =
            unsafe { ((*(*queue.fid()).ops).control)(queue.fid(), FI_GETWAIT, (&raw mut descriptor).cast()) };
        let descriptor = (result == 0 && descriptor >= 0).then_some(descriptor);
        Ok(Completions { queue, descriptor })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_found_by_their_contexts() {
        let slots = EndpointSlots::new(3);
        for slot in 0..3 {
            assert_eq!(slots.of_context(slots.context(slot)), Some(slot));
            assert_eq!(slots.of_context(slots.message(slot).cast()), None);
        }
        assert_eq!(slots.of_context(null_mut()), None);
        assert_eq!(slots.of_context(slots.context(0).wrapping_byte_add(3 * 8 * SLOT_WORDS)), None);
    }

    #[test]
    fn unknown_provider_is_an_error_that_names_it() {
        let Ok(_) = load() else { return eprintln!("skipped: no libfabric here") };
        let error = FabricEndpoint::open("no-such-provider", IpAddr::from([127, 0, 0, 1])).unwrap_err();
        assert!(error.contains("no-such-provider"), "{error}");
    }
}
