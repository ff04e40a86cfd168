//! A request to a peer's descriptor listener.
//!
//! It takes as long as the peer needs to make progress once.

use std::io;

use crate::device::connect::address::Address;
use crate::device::connect::attach::{AttachError, EndpointSegment};
use crate::device::connect::fd_message::Connection;
use crate::device::link::Link;

/// A request to a peer's descriptor listener.
#[derive(Debug)]
pub struct FdRequest {
    /// None while too many others connect.
    pub(crate) connection: Option<Connection>,
    /// Error of the way through /proc.
    pub(crate) instead: Option<AttachError>,
}

impl FdRequest {
    /// Takes the next step, if there is one to take.
    pub(crate) fn step(&mut self, own: &Address, to: &Address) -> Result<Option<Link>, AttachError> {
        let silent = |source| AttachError::Silent { pid: to.pid, source };
        if self.connection.is_none() {
            let opened = Connection::open(own, to).and_then(|c| c.give(&own.to_bytes(), &[]).map(|()| c));
            match opened {
                Ok(connection) => self.connection = Some(connection),
                Err(why) if why.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(why) => return Err(silent(why)),
            }
        }
        let Some(connection) = &self.connection else { return Ok(None) };
        let Some(answer) = connection.take().map_err(silent)? else {
            // A child of the dead peer may have inherited the socket: it will not answer.
            return if connection.is_lost() {
                Err(silent(io::ErrorKind::ConnectionReset.into()))
            } else {
                Ok(None)
            };
        };
        let nonsense = || silent(io::ErrorKind::InvalidData.into());
        let (number, file) = answer.number_and_file().ok_or_else(nonsense)?;
        let number = u32::try_from(number).map_err(|_| nonsense())?;
        let segment = EndpointSegment::given(to, file)?;
        let Some(connection) = self.connection.take() else { return Ok(None) };
        Link::visit(segment, number, connection, to, own).map(Some)
    }
}
