//! Crossbar switches: times of messages through them, and the ports that these occupy.
//!
//! Up to `network.one_switch` nodes hang on one switch. More hang on a mesh of switches with
//! `network.nodes_per_switch` nodes each: as many switches as needed, in a mesh as nearly square as
//! can be, whose routes go along the row first. A message takes the propagation of each link and
//! the fall-through of each switch; it occupies the node's own port and the output port of each
//! switch on its way for as long as it is, and nothing else limits it.

use crate::event_queue::Time;
use crate::parameters::Parameters;

/// Direction of a switch's port to another switch.
#[derive(Clone, Copy)]
enum MeshDirection {
    East,
    West,
    South,
    North,
}

/// Number of ports between switches, for each switch.
const BETWEEN: usize = 4;

#[derive(Debug)]
pub(crate) struct Switches {
    per_switch: usize,
    /// Switches in a row of the mesh.
    width: usize,
    fall_through: Time,
    propagation: Time,
    data: Time,
    request: Time,
    /// End of the occupancy of each node's port into the network.
    sending: Vec<Time>,
    /// End of the occupancy of each switch's port to each of its nodes.
    receiving: Vec<Time>,
    /// End of the occupancy of the ports between switches.
    between: Vec<[Time; BETWEEN]>,
    /// Messages that crossed the network.
    pub messages: u64,
}

impl Switches {
    pub fn new(p: &Parameters, nodes: usize) -> Self {
        let per_switch = if nodes <= p.one_switch as usize { nodes } else { p.nodes_per_switch as usize };
        let switches = nodes.div_ceil(per_switch);
        let width = (1..).find(|w| w * w >= switches).unwrap_or(1);
        Switches {
            per_switch,
            width,
            fall_through: p.fall_through,
            propagation: p.propagation,
            data: p.port_data,
            request: p.port_request,
            sending: vec![0; nodes],
            receiving: vec![0; nodes],
            // A mesh whose last row is not full has routes through all of its places.
            between: vec![[0; BETWEEN]; width * width],
            messages: 0,
        }
    }

    fn place(&self, node: usize) -> (usize, usize) {
        let switch = node / self.per_switch;
        (switch % self.width, switch / self.width)
    }

    /// Number of switches between two nodes; 0 from a node to itself.
    pub fn distance(&self, from: usize, to: usize) -> usize {
        if from == to {
            return 0;
        }
        let ((x, y), (to_x, to_y)) = (self.place(from), self.place(to));
        1 + x.abs_diff(to_x) + y.abs_diff(to_y)
    }

    /// Returns when a message that leaves now arrives.
    pub fn travel(&mut self, now: Time, from: usize, to: usize, data: bool) -> Time {
        if from == to {
            return now;
        }
        self.messages += 1;
        let occupancy = if data { self.data } else { self.request };
        let (mut x, mut y) = self.place(from);
        let (to_x, to_y) = self.place(to);
        let mut at = occupy(&mut self.sending[from], now, occupancy) + self.propagation;
        loop {
            at += self.fall_through;
            let direction = match () {
                () if x < to_x => MeshDirection::East,
                () if x > to_x => MeshDirection::West,
                () if y < to_y => MeshDirection::South,
                () if y > to_y => MeshDirection::North,
                () => break,
            };
            let port = &mut self.between[y * self.width + x][direction as usize];
            at = occupy(port, at, occupancy) + self.propagation;
            match direction {
                MeshDirection::East => x += 1,
                MeshDirection::West => x -= 1,
                MeshDirection::South => y += 1,
                MeshDirection::North => y -= 1,
            }
        }
        occupy(&mut self.receiving[to], at, occupancy) + self.propagation
    }
}

/// Occupies a port as soon as it is free. Returns when that is.
fn occupy(port: &mut Time, at: Time, occupancy: Time) -> Time {
    let at = at.max(*port);
    *port = at + occupancy;
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_are_those_of_one_switch_and_of_meshes() {
        let p = crate::machines::by_name("avalanche").unwrap();
        let count = |nodes: usize, switches| {
            let network = Switches::new(&p, nodes);
            (1..nodes).filter(|&to| network.distance(0, to) == switches).count()
        };
        assert_eq!(count(16, 1), 15);
        assert_eq!([count(32, 1), count(32, 2), count(32, 3)], [7, 16, 8]);
        assert_eq!([count(64, 1), count(64, 2), count(64, 4)], [7, 16, 16]);
    }

    #[test]
    fn ports_are_occupied_and_nothing_else() {
        let p = crate::machines::by_name("avalanche").unwrap();
        let mut network = Switches::new(&p, 32);
        let cycle = p.cycle;
        let mut travel = |from, to| network.travel(0, from, to, true) / cycle;
        assert_eq!(travel(0, 1), 6);
        assert_eq!(travel(2, 1), 6 + 18);
        assert_eq!(travel(3, 4), 6);
        assert_eq!(travel(5, 31), 3 * 4 + 4);
    }
}
