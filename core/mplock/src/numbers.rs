//! Numbers of nodes, deaths and requests.

/// Number of a node.
pub type Node = u16;

/// Number of deaths that the survivors have agreed on.
pub type Epoch = u32;

/// Number of a node's request for a lock: 1 for the first; 0 for none.
pub type Ticket = u32;
