//! A link: a TCP stream whose both ends have shown that they have the key.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use snow::HandshakeState;

use crate::cipher::RecordCipher;
#[cfg(feature = "fabric")]
use crate::fabric::{LaneReceiver, LaneSender};
use crate::frame::{FrameReader, FrameWriter, MAX_FRAME, ReadFailure};
use crate::tcp_info::unanswered;
use crate::{Error, Key, PolledLink, SILENCE};

/// Protocol of the handshake and the cipher.
///
/// Where the processor has instructions for AES, AES-GCM seals a small frame in a sixth of
/// ChaChaPoly's time.
const PROTOCOL: &str = "Noise_NNpsk0_25519_AESGCM_BLAKE2s";
/// Text of both ends' handshakes. Peers of another version fail in it.
const VERSION: &str = "towpath-net 3 ";
/// Maximum number of bytes of a message of the handshake.
const MAX_HANDSHAKE: usize = 256;

/// First frame over libfabric.
#[cfg(feature = "fabric")]
const GREETING: &[u8] = b"towpath over libfabric";

/// Number of unanswered attempts in a row after which a host is silent.
///
/// Each comes after twice the time of the one before, the first after 0.2 s at least: together 3 s.
const UNANSWERED: u8 = 4;

/// Link to a peer.
#[derive(Debug)]
pub struct Link {
    sender: FrameSender,
    receiver: FrameReceiver,
}

/// Sending half of a link.
#[derive(Debug)]
pub struct FrameSender {
    common: Arc<Common>,
    writer: FrameWriter,
    /// Way of the frames, if that is not the TCP connection.
    #[cfg(feature = "fabric")]
    lane: Option<LaneSender>,
}

/// Receiving half of a link.
#[derive(Debug)]
pub struct FrameReceiver {
    common: Arc<Common>,
    reader: FrameReader,
    buffered: io::BufReader<SharedStream>,
    /// Way of the frames, if that is not the TCP connection.
    #[cfg(feature = "fabric")]
    lane: Option<LaneReceiver>,
}

/// Handle by which any thread watches a link, and closes it.
#[derive(Clone, Debug)]
pub struct LinkMonitor(Arc<Common>);

#[derive(Debug)]
pub(crate) struct Common {
    pub(crate) stream: TcpStream,
    pub(crate) peer: SocketAddr,
}

/// Reads from the stream that both halves share.
#[derive(Debug)]
struct SharedStream(Arc<Common>);

impl Read for SharedStream {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        (&self.0.stream).read(to)
    }
}

impl Link {
    /// Connects to a peer that listens for the same purpose. Waits for at most `within`.
    ///
    /// # Errors
    ///
    /// [`Error::Unreachable`], or [`Error::NotOurs`] if the peer has another key.
    pub fn connect(peer: SocketAddr, key: &Key, purpose: &str, within: Duration) -> Result<Link, Error> {
        let until = Instant::now() + within;
        let unreachable = |error| Error::Unreachable(peer, error);
        let stream =
            TcpStream::connect_timeout(&peer, within.max(Duration::from_millis(1))).map_err(unreachable)?;
        let mut handshake = builder(key, purpose)?.build_initiator().map_err(|_| Error::NotOurs(peer))?;
        send_handshake(&mut handshake, &stream, peer)?;
        receive_handshake(&mut handshake, &stream, peer, until)?;
        Link::over(stream, peer, handshake)
    }

    /// Answers a peer that has connected. Waits for at most `within`.
    pub(crate) fn accept(
        stream: TcpStream,
        peer: SocketAddr,
        key: &Key,
        purpose: &str,
        within: Duration,
    ) -> Result<Link, Error> {
        let mut handshake = builder(key, purpose)?.build_responder().map_err(|_| Error::NotOurs(peer))?;
        receive_handshake(&mut handshake, &stream, peer, Instant::now() + within)?;
        send_handshake(&mut handshake, &stream, peer)?;
        Link::over(stream, peer, handshake)
    }

    fn over(stream: TcpStream, peer: SocketAddr, mut handshake: HandshakeState) -> Result<Link, Error> {
        if !handshake.is_handshake_finished() {
            return Err(Error::NotOurs(peer));
        }
        // The keys of both directions, the connecting end's first.
        let (asks, answers) = handshake.dangerously_get_raw_split();
        let (here, there) = if handshake.is_initiator() { (asks, answers) } else { (answers, asks) };
        let cipher = |key| RecordCipher::new(key).ok_or(Error::NotOurs(peer));
        let (writer, reader) = (FrameWriter::new(cipher(&here)?), FrameReader::new(cipher(&there)?));
        settle(&stream).map_err(|error| Error::Unreachable(peer, error))?;
        let common = Arc::new(Common { stream, peer });
        Ok(Link {
            sender: FrameSender {
                common: common.clone(),
                writer,
                #[cfg(feature = "fabric")]
                lane: None,
            },
            receiver: FrameReceiver {
                buffered: io::BufReader::with_capacity(1 << 16, SharedStream(common.clone())),
                common,
                reader,
                #[cfg(feature = "fabric")]
                lane: None,
            },
        })
    }

    /// Address of the peer.
    #[must_use]
    pub fn peer(&self) -> SocketAddr {
        self.sender.common.peer
    }

    /// Sends a frame.
    ///
    /// # Errors
    ///
    /// As [`FrameSender::send`].
    pub fn send(&mut self, frame: &[u8]) -> Result<(), Error> {
        self.sender.send(frame)
    }

    /// Waits for a frame.
    ///
    /// # Errors
    ///
    /// As [`FrameReceiver::receive`].
    pub fn receive(&mut self, frame: &mut Vec<u8>) -> Result<(), Error> {
        self.receiver.receive(frame)
    }

    /// Makes a handle by which a third thread watches the link, and closes it.
    #[must_use]
    pub fn monitor(&self) -> LinkMonitor {
        LinkMonitor(self.sender.common.clone())
    }

    /// Moves the link's frames to libfabric, on both ends at about the same time.
    ///
    /// `provider`: libfabric's name of it, equal on both ends (`tcp`, `verbs`, `efa`, `cxi`, …).
    /// Frames stay encrypted. The TCP connection stays, too: its end is the link's. The caller's
    /// descriptors that libfabric opens are closed in programs that the process executes later.
    ///
    /// # Errors
    ///
    /// [`Error::Fabric`] if either end has no such provider, or no message crosses within the time;
    /// those of the link. The link is of no use any more.
    #[cfg_attr(not(feature = "fabric"), allow(unused_variables))]
    pub fn over_fabric(self, provider: &str, within: Duration) -> Result<Link, Error> {
        #[cfg(feature = "fabric")]
        return self.move_to_fabric(provider, within);
        #[cfg(not(feature = "fabric"))]
        Err(Error::Fabric(self.peer(), "this build has no client of it (the feature `fabric`)".into()))
    }

    #[cfg(feature = "fabric")]
    fn move_to_fabric(mut self, provider: &str, within: Duration) -> Result<Link, Error> {
        use crate::fabric::{DescriptorsBefore, FabricEndpoint, lanes};
        let peer = self.peer();
        let failed = |why: String| Error::Fabric(peer, why);
        let before = DescriptorsBefore::new();
        let here = self.sender.common.stream.local_addr();
        let here = here.map_err(|error| Error::Unreachable(peer, error))?.ip().to_canonical();
        let own = FabricEndpoint::open(provider, here).and_then(|own| Ok((own.address()?, own)));
        // Its first byte says whether an address follows, or the reason why there is none.
        let said = match &own {
            Ok((address, _)) => [&[1], &address[..]].concat(),
            Err(why) => [&[0], why.as_bytes()].concat(),
        };
        self.send(&said)?;
        let mut frame = Vec::new();
        self.receiver.wait_at_most(Some(within))?;
        let heard = self.receive(&mut frame);
        let (_, own) = own.map_err(failed)?;
        heard?;
        match frame.split_first() {
            Some((1, address)) => own.connect(address).map_err(failed)?,
            Some((0, why)) => {
                return Err(failed(format!("the other end says: {}", String::from_utf8_lossy(why))));
            }
            _ => return Err(Error::Damaged(peer)),
        }
        let (sender, receiver) = lanes(own).map_err(|error| failed(error.to_string()))?;
        (self.sender.lane, self.receiver.lane) = (Some(sender), Some(receiver));
        // A message in each direction: from then on both ends are connected.
        let crossed = self.cross(within);
        before.keep_from_children();
        crossed.map_err(|error| failed(format!("no message crosses ({error})")))?;
        self.receiver.wait_at_most(None)?;
        Ok(self)
    }

    /// Sends a greeting, and waits for the peer's.
    #[cfg(feature = "fabric")]
    fn cross(&mut self, within: Duration) -> Result<(), Error> {
        let until = Instant::now() + within;
        let mut frame = Vec::new();
        self.receiver.wait_at_most(Some(within))?;
        let is_sent = self.sender.send_now(GREETING)?;
        if !is_sent {
            self.sender.flush_until(Some(until))?;
        }
        self.receive(&mut frame)?;
        if frame == GREETING { Ok(()) } else { Err(Error::Damaged(self.peer())) }
    }

    /// Makes a link of it that never blocks, for a thread that polls many.
    ///
    /// # Errors
    ///
    /// [`Error::Unreachable`] if the system refuses; [`Error::Fabric`] for a link over libfabric.
    pub fn polled(self) -> Result<PolledLink, Error> {
        #[cfg(feature = "fabric")]
        if self.sender.lane.is_some() {
            return Err(Error::Fabric(self.peer(), "such a link can't be polled".into()));
        }
        let Common { stream, peer, .. } = &*self.sender.common;
        stream.set_nonblocking(true).map_err(|error| Error::Unreachable(*peer, error))?;
        Ok(PolledLink::new(self.sender.common, self.sender.writer, self.receiver.reader))
    }

    /// Splits the link into halves for two threads.
    #[must_use]
    pub fn split(self) -> (FrameSender, FrameReceiver) {
        (self.sender, self.receiver)
    }
}

impl FrameSender {
    /// Sends a frame. Waits while the peer does not read and its buffers are full.
    ///
    /// # Errors
    ///
    /// [`Error::TooLong`]; [`Error::Unreachable`] when the peer is gone: part of the frame may
    /// have been sent, and the link is of no use any more.
    pub fn send(&mut self, frame: &[u8]) -> Result<(), Error> {
        self.add(frame)?;
        self.flush()
    }

    /// Sends a frame as far as that is possible without waiting.
    ///
    /// Returns whether it has gone out whole. If not, the rest goes first when the next frame is
    /// sent, or by [`FrameSender::flush`].
    ///
    /// # Errors
    ///
    /// As [`FrameSender::send`].
    pub fn send_now(&mut self, frame: &[u8]) -> Result<bool, Error> {
        self.add(frame)?;
        #[cfg(feature = "fabric")]
        if let Some(lane) = &mut self.lane {
            let Common { peer, .. } = &*self.common;
            let sent = lane.send_now(&mut self.writer.sealer);
            return sent.map_err(|error| Error::Unreachable(*peer, error));
        }
        self.push(SendFlags::DONTWAIT)
    }

    /// Sends the rest of the frames before. Waits while the peer does not read.
    ///
    /// # Errors
    ///
    /// As [`FrameSender::send`].
    pub fn flush(&mut self) -> Result<(), Error> {
        #[cfg(feature = "fabric")]
        if self.lane.is_some() {
            return self.flush_until(None);
        }
        self.push(SendFlags::empty()).map(|_| ())
    }

    #[cfg(feature = "fabric")]
    fn flush_until(&mut self, until: Option<Instant>) -> Result<(), Error> {
        let Some(lane) = &mut self.lane else { return Ok(()) };
        let Common { peer, stream } = &*self.common;
        let sent = lane.flush(&mut self.writer.sealer, stream, until);
        sent.map_err(|error| Error::Unreachable(*peer, error))
    }

    /// Waits until the peer gets all frames, although the link is closed next.
    ///
    /// TCP does that by itself; over libfabric the peer learns how much there is. Frames that are
    /// sent later are dropped.
    ///
    /// # Errors
    ///
    /// [`Error::Unreachable`] if the peer is gone, or does not take it within the time.
    #[cfg_attr(not(feature = "fabric"), allow(unused_variables))]
    pub fn finish(&mut self, within: Duration) -> Result<(), Error> {
        #[cfg(feature = "fabric")]
        if let Some(lane) = &mut self.lane {
            let Common { peer, stream } = &*self.common;
            let finished = lane.finish(&mut self.writer.sealer, stream, within);
            return finished.map_err(|error| Error::Unreachable(*peer, error));
        }
        Ok(())
    }

    fn add(&mut self, frame: &[u8]) -> Result<(), Error> {
        if frame.len() > MAX_FRAME {
            return Err(Error::TooLong(frame.len()));
        }
        #[cfg(feature = "fabric")]
        if let Some(lane) = &mut self.lane {
            lane.add(frame);
            return Ok(());
        }
        let Common { peer, .. } = &*self.common;
        self.writer.add(frame).map_err(|error| Error::Unreachable(*peer, error))
    }

    fn push(&mut self, flags: SendFlags) -> Result<bool, Error> {
        let Common { stream, peer, .. } = &*self.common;
        while !self.writer.unsent().is_empty() {
            match send(stream, self.writer.unsent(), flags | SendFlags::NOSIGNAL) {
                Ok(count) => self.writer.advance(count),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) if flags.contains(SendFlags::DONTWAIT) => return Ok(false),
                Err(error) => return Err(Error::Unreachable(*peer, error.into())),
            }
        }
        Ok(true)
    }

    /// Address of the peer.
    #[must_use]
    pub fn peer(&self) -> SocketAddr {
        self.common.peer
    }
}

impl LinkMonitor {
    /// Returns whether the peer's host has not answered for about [`SILENCE`].
    ///
    /// A host whose processes are stopped answers, since its kernel does.
    ///
    /// The system notices by itself while nothing is on its way; otherwise its patience is
    /// some fifteen minutes, and the link's owner asks this now and then, and closes it.
    #[must_use]
    pub fn is_silent(&self) -> bool {
        unanswered(&self.0.stream) >= UNANSWERED
    }

    /// Closes the link, for both halves.
    ///
    /// A thread that waits in one of them gets an error.
    pub fn close(&self) {
        let _ = self.0.stream.shutdown(Shutdown::Both);
    }
}

impl FrameReceiver {
    /// Waits for a frame, and leaves it in `frame`.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`] if the peer has closed the link; [`Error::Unreachable`] if its host is
    /// gone; [`Error::Damaged`].
    pub fn receive(&mut self, frame: &mut Vec<u8>) -> Result<(), Error> {
        let Common { peer, .. } = &*self.common;
        #[cfg(feature = "fabric")]
        let read = match &mut self.lane {
            Some(lane) => lane.receive(&mut self.reader.opener, &self.common.stream, frame),
            None => self.reader.read(&mut self.buffered, frame),
        };
        #[cfg(not(feature = "fabric"))]
        let read = self.reader.read(&mut self.buffered, frame);
        read.map_err(|failure| match failure {
            ReadFailure::Io(error) => Error::Unreachable(*peer, error),
            ReadFailure::Damaged => Error::Damaged(*peer),
            ReadFailure::Closed => Error::Closed(*peer),
        })
    }

    /// Sets the maximum time for which [`FrameReceiver::receive`] waits for bytes.
    ///
    /// A receiver whose time is over in the middle of a frame has lost the link.
    ///
    /// # Errors
    ///
    /// [`Error::Unreachable`] if the system refuses.
    pub fn wait_at_most(&mut self, time: Option<Duration>) -> Result<(), Error> {
        #[cfg(feature = "fabric")]
        if let Some(lane) = &mut self.lane {
            lane.at_most = time;
            return Ok(());
        }
        let Common { stream, peer, .. } = &*self.common;
        stream.set_read_timeout(time).map_err(|error| Error::Unreachable(*peer, error))
    }

    /// Address of the peer.
    #[must_use]
    pub fn peer(&self) -> SocketAddr {
        self.common.peer
    }
}

fn builder<'k>(key: &'k Key, purpose: &'k str) -> Result<snow::Builder<'k>, Error> {
    let nowhere = SocketAddr::from(([0, 0, 0, 0], 0));
    let parameters = PROTOCOL.parse().map_err(|_| Error::NotOurs(nowhere))?;
    snow::Builder::new(parameters)
        .psk(0, key.bytes())
        .and_then(|builder| builder.prologue(purpose.as_bytes()))
        .map_err(|_| Error::NotOurs(nowhere))
}

fn send_handshake(state: &mut HandshakeState, stream: &TcpStream, peer: SocketAddr) -> Result<(), Error> {
    let mut message = [0; 2 + MAX_HANDSHAKE];
    let payload = VERSION.as_bytes();
    let length = state.write_message(payload, &mut message[2..]).map_err(|_| Error::NotOurs(peer))?;
    message[..2].copy_from_slice(&(length as u16).to_le_bytes());
    (&*stream).write_all(&message[..2 + length]).map_err(|error| Error::Unreachable(peer, error))
}

fn receive_handshake(
    state: &mut HandshakeState,
    stream: &TcpStream,
    peer: SocketAddr,
    until: Instant,
) -> Result<(), Error> {
    let mut message = [0; MAX_HANDSHAKE];
    let mut payload = [0; MAX_HANDSHAKE];
    let mut length = [0; 2];
    read_until(stream, &mut length, peer, until)?;
    let length = usize::from(u16::from_le_bytes(length));
    let message = message.get_mut(..length).ok_or(Error::NotOurs(peer))?;
    read_until(stream, message, peer, until)?;
    let count = state.read_message(message, &mut payload).map_err(|_| Error::NotOurs(peer))?;
    if &payload[..count] == VERSION.as_bytes() { Ok(()) } else { Err(Error::NotOurs(peer)) }
}

/// Fills `to`, until a time. A peer that sends a byte now and then does not hold the
/// caller.
fn read_until(mut from: &TcpStream, to: &mut [u8], peer: SocketAddr, until: Instant) -> Result<(), Error> {
    let unreachable = |error| Error::Unreachable(peer, error);
    let mut filled = 0;
    while filled < to.len() {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(unreachable(io::ErrorKind::TimedOut.into()));
        }
        from.set_read_timeout(Some(left)).map_err(unreachable)?;
        match from.read(&mut to[filled..]) {
            // A peer that refuses our key closes the stream in the middle of the handshake.
            Ok(0) => return Err(Error::NotOurs(peer)),
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Err(Error::NotOurs(peer)),
            Err(error) => return Err(unreachable(error)),
        }
    }
    Ok(())
}

/// Sets the options of all links: no delay, and probes of an idle peer.
fn settle(stream: &TcpStream) -> io::Result<()> {
    use rustix::net::sockopt;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(None)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, Duration::from_secs(1))?;
    sockopt::set_tcp_keepintvl(stream, Duration::from_secs(1))?;
    sockopt::set_tcp_keepcnt(stream, SILENCE.as_secs() as u32)?;
    Ok(())
}
