//! Descriptors that libfabric opens, kept from programs that the process starts.
//!
//! Providers open sockets and epoll descriptors without `O_CLOEXEC`. A program that inherited a
//! link's descriptors could disturb the link, and would keep its ports.

use std::collections::BTreeSet;
use std::os::fd::{BorrowedFd, RawFd};
use std::path::PathBuf;

use rustix::io::{FdFlags, fcntl_getfd, fcntl_setfd};

/// Descriptors that were open before libfabric was called.
#[derive(Debug)]
pub struct DescriptorsBefore(BTreeSet<(RawFd, PathBuf)>);

impl DescriptorsBefore {
    pub fn new() -> DescriptorsBefore {
        DescriptorsBefore(open_descriptors().collect())
    }

    /// Marks descriptors that were opened since then, to be closed in other programs.
    ///
    /// Only sockets, pipes and anonymous ones: files may be meant for the program.
    pub fn keep_from_children(&self) {
        for (descriptor, target) in open_descriptors().filter(|open| !self.0.contains(open)) {
            let kind = target.to_string_lossy();
            if !["socket:", "pipe:", "anon_inode:"].iter().any(|begin| kind.starts_with(begin)) {
                continue;
            }
            // SAFETY: only its flag is changed; one that was closed meanwhile is an error.
            let descriptor = unsafe { BorrowedFd::borrow_raw(descriptor) };
            if let Ok(flags) = fcntl_getfd(descriptor) {
                let _ = fcntl_setfd(descriptor, flags | FdFlags::CLOEXEC);
            }
        }
    }
}

/// Open descriptors, and their targets.
fn open_descriptors() -> impl Iterator<Item = (RawFd, PathBuf)> {
    let entries = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        let target = std::fs::read_link(entry.path()).ok()?;
        Some((entry.file_name().to_str()?.parse().ok()?, target))
    })
}
