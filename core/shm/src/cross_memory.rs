//! Reading the private memory of another participant (`process_vm_readv`), where the
//! system permits it.
//!
//! A pid may have been used again by the time of the call. So one call reads the bytes and a number
//! that only the right process has at that address: the kernel takes both from one process. The
//! process may die meanwhile; the bytes are those that it had.
#![allow(unsafe_code)]

use std::sync::atomic::Ordering;

use crate::World;
use crate::participant::ParticipantId;

/// Bytes in a participant's private memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteBytes {
    /// Address of the first byte, in its process.
    pub address: u64,
    /// Address of the proof, in its process.
    pub proof_at: u64,
    /// Number that its process has there, and no other process.
    pub proof: u64,
}

impl World {
    /// Returns whether a participant is another process, whose pid means the same here.
    ///
    /// Whether the system permits reading its memory, only [`World::read_remote`] finds out.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// assert!(!world.is_remote(world.me()), "it is this process");
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn is_remote(&self, id: ParticipantId) -> bool {
        self.pid_here(id).is_some_and(|pid| pid != std::process::id())
    }

    /// The pid of a participant in this process's namespace.
    fn pid_here(&self, id: ParticipantId) -> Option<u32> {
        let pid = self.pid_of(id)?;
        // Relaxed: written before the word that says ENTERED; if it is an older one, the proof is
        // missing where the pid leads.
        let namespace = self.inner().entry(id.index).namespace.load(Ordering::Relaxed);
        (namespace != 0 && namespace == self.inner().namespace()).then_some(pid)
    }

    /// Copies bytes out of a participant's private memory. Returns `false` if the system
    /// does not permit it, or the process is not the one that has the proof; `to` then holds
    /// anything.
    ///
    /// ```
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(2))?;
    /// # world.enter(Some(0))?;
    /// use towpath::RemoteBytes;
    ///
    /// let nowhere = RemoteBytes { address: 0, proof_at: 0, proof: 7 };
    /// assert!(!world.read_remote(world.me(), nowhere, &mut [0; 8]), "nothing is there");
    /// # Ok::<(), towpath::Error>(())
    /// ```
    pub fn read_remote(&self, id: ParticipantId, from: RemoteBytes, to: &mut [u8]) -> bool {
        let Some(pid) = self.pid_here(id) else { return false };
        let mut proof = [0u8; 8];
        let local = [
            libc::iovec { iov_base: to.as_mut_ptr().cast(), iov_len: to.len() },
            libc::iovec { iov_base: proof.as_mut_ptr().cast(), iov_len: proof.len() },
        ];
        let remote = [
            libc::iovec { iov_base: from.address as *mut _, iov_len: to.len() },
            libc::iovec { iov_base: from.proof_at as *mut _, iov_len: proof.len() },
        ];
        // SAFETY: the local ranges are this function's own and of that length; the remote ones are
        // read by the kernel, which checks them.
        let copied =
            unsafe { libc::process_vm_readv(pid as libc::pid_t, local.as_ptr(), 2, remote.as_ptr(), 2, 0) };
        usize::try_from(copied) == Ok(to.len() + proof.len()) && u64::from_ne_bytes(proof) == from.proof
    }
}
