//! Addresses of this host for servers that a test starts.

use std::net::{SocketAddr, TcpListener};

/// Addresses of loopback, so many, with different ports that are free now.
///
/// # Panics
///
/// If the system gives no port.
pub fn free_addresses(count: usize) -> Vec<SocketAddr> {
    // All at one time: else one could be given twice.
    let listeners: Vec<_> = (0..count).map(|_| TcpListener::bind("127.0.0.1:0").expect("a port")).collect();
    listeners.iter().map(|listener| listener.local_addr().expect("an address")).collect()
}
