//! The quorum's log of changes: OmniPaxos, its messages as bytes.
//!
//! The library (Ng, Haridi and Carbone 2023, *Omni-Paxos*) does no input or output: it is ticked,
//! handed messages, and asked for those that it wants to send. Lock traffic stays outside of it.

use omnipaxos::messages::Message;
use omnipaxos::util::LogEntry;
use omnipaxos::{ClusterConfig, OmniPaxos, ServerConfig};
use towpath_mplock::Node;

use crate::Error;
use crate::journal::Journal;
use crate::membership::MembershipChange;

/// Number of ticks after which the leader's election is looked at.
const ELECTION_TICKS: u64 = 3;
/// Number of ticks after which a message is sent again.
const RESEND_TICKS: u64 = 10;

/// Log of changes, of which this agent has a copy.
pub(crate) struct Consensus {
    paxos: OmniPaxos<MembershipChange, Journal>,
    hosts: usize,
    /// Number of changes that were taken.
    taken: usize,
}

impl std::fmt::Debug for Consensus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Consensus").field("taken", &self.taken).finish_non_exhaustive()
    }
}

/// Number of a host in the library, which begins with 1.
fn pid_of(host: Node) -> u64 {
    u64::from(host) + 1
}

impl Consensus {
    pub fn new(me: Node, hosts: usize, journal: Journal) -> Result<Consensus, Error> {
        let nodes = (0..hosts as Node).map(pid_of).collect();
        let cluster = ClusterConfig { configuration_id: 1, nodes, flexible_quorum: None };
        let server = ServerConfig {
            pid: pid_of(me),
            election_tick_timeout: ELECTION_TICKS,
            resend_message_tick_timeout: RESEND_TICKS,
            ..ServerConfig::default()
        };
        let paxos = cluster
            .build_for_server(server, journal)
            .map_err(|error| Error::Hosts(format!("these hosts make no quorum: {error:?}")))?;
        Ok(Consensus { paxos, hosts, taken: 0 })
    }

    /// Returns whether this agent leads: it proposes changes.
    pub fn leads(&self) -> bool {
        self.paxos.get_current_leader() == Some((self.paxos.get_pid(), true))
    }

    /// Proposes a change. It may be lost.
    pub fn propose(&mut self, change: MembershipChange) {
        let _ = self.paxos.append(change);
    }

    pub fn tick(&mut self) {
        self.paxos.tick();
    }

    /// Says that a link to a host is there again.
    pub fn reconnected(&mut self, host: Node) {
        self.paxos.reconnected(pid_of(host));
    }

    /// Handles a message of another agent. Bytes that are none are passed over.
    pub fn on_message(&mut self, from: Node, bytes: &[u8]) {
        let Ok(message) = serde_json::from_slice::<Message<MembershipChange>>(bytes) else { return };
        let sender = match &message {
            Message::SequencePaxos(message) => (message.from, message.to),
            Message::BLE(message) => (message.from, message.to),
        };
        if sender == (pid_of(from), self.paxos.get_pid()) {
            self.paxos.handle_incoming(message);
        }
    }

    /// Takes the messages that are to be sent, each with its receiver.
    pub fn take_messages(&mut self) -> Vec<(Node, Vec<u8>)> {
        let mut messages = Vec::new();
        self.paxos.take_outgoing_messages(&mut messages);
        let encoded = messages.into_iter().filter_map(|message| {
            let host = message.get_receiver().checked_sub(1).filter(|&host| host < self.hosts as u64)?;
            Some((host as Node, serde_json::to_vec(&message).ok()?))
        });
        encoded.collect()
    }

    /// Takes the changes that were decided since the last time.
    pub fn take_decided(&mut self) -> Vec<MembershipChange> {
        let decided = self.paxos.read_decided_suffix(self.taken).unwrap_or_default();
        self.taken += decided.len();
        let change = |entry| match entry {
            LogEntry::Decided(change) => Some(change),
            _ => None,
        };
        decided.into_iter().filter_map(change).collect()
    }
}
