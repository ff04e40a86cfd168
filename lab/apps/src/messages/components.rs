//! Connected components of a graph on a lattice, dealt out in tiles.
//!
//! **Source.** Krishnamurthy, Lumetta, Culler & Yelick 1994 ("Connected components on distributed
//! memory machines"); paper L, Section 4.3 and Table 3 (`CON`: a lattice of three dimensions with a
//! quarter of its edges, which communicates most of the time, and one of two dimensions with 40 %,
//! which computes). Each rank first joins the components within its tile. The graph that is left
//! has supernodes, a component of a tile each, and edges between tiles. In each round the ranks ask
//! for the labels at the far ends of their edges, forget edges with equal labels, hook the larger
//! label of each other edge to the smaller, and then follow the labels until each is a root's.
//!
//! **Sizes.** Tiles with sides of 8, 32, 128 and 800 (two dimensions) or 4, 12, 32 and 80 (three);
//! the last are the paper's.
//!
//! **Checked by** each rank: union and find over the whole graph gives each of its nodes the number
//! of the smallest node of the component, and so does this.
//!
//! **Fields.** `Labels`: written by the rank and its handlers, which run in its thread. A label
//! only ever becomes smaller.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use towpath_machine::Random;

use super::party::{FIRST, acknowledge};
use super::{MessageInput, Party, RankRun, SharedHandlers};

/// Instructions of the phase within tiles, for each node and for each edge.
const NODE: u64 = 60;
const EDGE: u64 = 60;

const ASK_NODE: u8 = FIRST;
const ASK_LABEL: u8 = FIRST + 1;
const LABEL: u8 = FIRST + 2;
const HOOK: u8 = FIRST + 3;

/// Lattice of so many dimensions, in tiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lattice {
    /// Nodes along each side of a tile; 1 in a dimension that is not there.
    side: [usize; 3],
    /// Tiles along each dimension.
    tiles: [usize; 3],
    /// Edges of a hundred that are there.
    percent: u64,
    seed: u64,
}

/// Dimensions of a lattice: two or three.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dimensions {
    /// Two dimensions, 40 % of the edges.
    Two,
    /// Three dimensions, 25 % of the edges.
    Three,
}

/// Deals `procs` out to so many dimensions, as evenly as their factors allow.
fn tiles(mut procs: usize, dimensions: usize) -> [usize; 3] {
    let mut tiles = [1; 3];
    let mut factor = 2;
    let mut factors = Vec::new();
    while procs > 1 {
        if procs.is_multiple_of(factor) {
            factors.push(factor);
            procs /= factor;
        } else {
            factor += 1;
        }
    }
    for factor in factors.into_iter().rev() {
        if let Some(least) = tiles[..dimensions].iter_mut().min() {
            *least *= factor;
        }
    }
    tiles
}

impl Lattice {
    fn new(dimensions: Dimensions, input: MessageInput, procs: usize) -> Self {
        let (side, percent) = match dimensions {
            Dimensions::Two => {
                let side = input.size.pick([8, 32, 128, 800]);
                ([side, side, 1], 40)
            }
            Dimensions::Three => ([input.size.pick([4, 12, 32, 80]); 3], 25),
        };
        let tiles = tiles(procs, if dimensions == Dimensions::Two { 2 } else { 3 });
        Lattice { side, tiles, percent, seed: input.seed }
    }

    /// Number of nodes of a tile. Those of tile `t` are numbered from `t` times that on.
    fn tile(&self) -> usize {
        self.side.iter().product()
    }

    fn tile_count(&self) -> usize {
        self.tiles.iter().product()
    }

    /// Neighbour of a node in the direction of a growing coordinate.
    fn ahead(&self, node: usize, direction: usize) -> Option<usize> {
        let (tile, local) = (node / self.tile(), node % self.tile());
        let step: usize = self.side[..direction].iter().product();
        let at = local / step % self.side[direction];
        if at + 1 < self.side[direction] {
            return Some(node + step);
        }
        let tile_step: usize = self.tiles[..direction].iter().product();
        let has_next = tile / tile_step % self.tiles[direction] + 1 < self.tiles[direction];
        has_next.then(|| (tile + tile_step) * self.tile() + local - at * step)
    }

    /// Edges of a tile's nodes to nodes ahead of them.
    fn edges(&self, tile: usize) -> impl Iterator<Item = (usize, usize)> {
        let nodes = tile * self.tile()..(tile + 1) * self.tile();
        let mut random = Random::stream(self.seed, tile as u64);
        let chance = (u64::MAX / 100) * self.percent;
        nodes.flat_map(move |node| {
            let drawn = [(); 3].map(|()| random.word() < chance);
            (0..3).filter(move |&d| drawn[d]).filter_map(move |d| Some((node, self.ahead(node, d)?)))
        })
    }
}

/// Union and find: each node's parent is smaller, or itself.
struct Forest(Vec<u32>);

impl Forest {
    fn new(len: usize) -> Self {
        Forest((0..len as u32).collect())
    }

    fn find(&mut self, mut node: usize) -> usize {
        while self.0[node] as usize != node {
            self.0[node] = self.0[self.0[node] as usize];
            node = self.0[node] as usize;
        }
        node
    }

    fn join(&mut self, a: usize, b: usize) {
        let (a, b) = (self.find(a), self.find(b));
        self.0[a.max(b)] = a.min(b) as u32;
    }
}

/// Labels of a rank's nodes.
struct Labels {
    /// Number of the first node.
    first: usize,
    /// Smallest node of each node's component within the tile.
    root: Vec<AtomicU32>,
    /// Label of the component of each such smallest node.
    label: Vec<AtomicU32>,
    /// Answers to this rank's questions.
    answers: Vec<AtomicU32>,
}

impl Labels {
    // Relaxed, here and below: the rank's handlers run in its thread.
    fn of_root(&self, node: usize) -> u32 {
        self.label[node - self.first].load(Ordering::Relaxed)
    }
    fn of_node(&self, node: usize) -> u32 {
        self.label[self.root[node - self.first].load(Ordering::Relaxed) as usize].load(Ordering::Relaxed)
    }
    fn lower(&self, node: usize, label: u32) {
        let slot = &self.label[node - self.first];
        slot.store(slot.load(Ordering::Relaxed).min(label), Ordering::Relaxed);
    }
    fn has(&self, node: u32) -> bool {
        (self.first..self.first + self.root.len()).contains(&(node as usize))
    }
    fn answer(&self, n: usize) -> u32 {
        self.answers[n].load(Ordering::Relaxed)
    }
}

/// Rank that works at its tile.
struct Tile<'p, 'e, D: SharedHandlers> {
    party: &'p Party<'e, D>,
    lattice: Lattice,
    labels: Arc<Labels>,
}

impl<D: SharedHandlers> Tile<'_, '_, D> {
    /// Asks for labels, at most as many as there are places for answers, of nodes or of
    /// supernodes. Returns when all answers are there.
    fn ask(&self, handler: u8, nodes: impl Iterator<Item = usize>) -> Result<(), String> {
        for (n, node) in nodes.enumerate() {
            self.party.ask(node / self.lattice.tile(), handler, &[node as u32, n as u32])?;
            self.party.poll();
        }
        self.party.settle()
    }

    /// Joins components across tiles. Returns the number of rounds.
    fn join(&self, mut edges: Vec<(u32, u32)>) -> Result<u32, String> {
        let mut rounds = 0;
        loop {
            rounds += 1;
            self.ask(ASK_LABEL, edges.iter().map(|e| e.1 as usize))?;
            let mut left = Vec::new();
            let mut hooks = Vec::new();
            for (n, &(mine, far)) in edges.iter().enumerate() {
                let (a, b) = (self.labels.of_root(mine as usize), self.labels.answer(n));
                if a != b {
                    left.push((mine, far));
                    hooks.push((a.max(b), a.min(b)));
                }
            }
            edges = left;
            // All have looked: labels may change.
            if !self.party.meet(!edges.is_empty())? {
                return Ok(rounds);
            }
            hooks.sort_unstable();
            hooks.dedup_by_key(|hook| hook.0);
            for (larger, smaller) in hooks {
                self.party.ask(larger as usize / self.lattice.tile(), HOOK, &[larger, smaller])?;
            }
            self.party.settle()?;
            self.party.meet(false)?;
            self.follow()?;
        }
    }

    /// Follows labels until each is a root's.
    fn follow(&self) -> Result<(), String> {
        let labels = &self.labels;
        loop {
            let hooked: Vec<usize> = (labels.first..labels.first + labels.root.len())
                .filter(|&node| {
                    let local = (node - labels.first) as u32;
                    labels.root[local as usize].load(Ordering::Relaxed) == local
                        && labels.of_root(node) as usize != node
                })
                .collect();
            self.ask(ASK_LABEL, hooked.iter().map(|&node| labels.of_root(node) as usize))?;
            let mut changed = false;
            for (n, &node) in hooked.iter().enumerate() {
                let next = labels.answer(n);
                changed |= next != labels.of_root(node);
                labels.lower(node, next);
            }
            if !self.party.meet(changed)? {
                return Ok(());
            }
        }
    }
}

fn handlers<D: SharedHandlers>(party: &Party<'_, D>, labels: &Arc<Labels>) {
    // A question about a node that is not here is not answered: its sender waits in vain, and says
    // so when the run is given up.
    for (handler, is_node) in [(ASK_NODE, true), (ASK_LABEL, false)] {
        let here = Arc::clone(labels);
        party.on(handler, move |token| {
            if let [node, slot] = *token.args()
                && here.has(node)
            {
                let node = node as usize;
                let label = if is_node { here.of_node(node) } else { here.of_root(node) };
                // A request is answered once, and its sender waits for it.
                let _ = token.reply(LABEL, &[slot, label]);
            }
        });
    }
    let (here, answered) = (Arc::clone(labels), party.answered());
    party.on(LABEL, move |token| {
        if let [slot, label] = *token.args()
            && let Some(answer) = here.answers.get(slot as usize)
        {
            answer.store(label, Ordering::Relaxed);
            answered();
        }
    });
    let here = Arc::clone(labels);
    party.on(HOOK, move |token| {
        if let [node, label] = *token.args()
            && here.has(node)
        {
            here.lower(node as usize, label);
            acknowledge(token);
        }
    });
}

/// Labels the components of a lattice as one of the ranks that have a tile each.
///
/// # Errors
///
/// If a label of this rank's nodes is not the smallest number of its component, or a message can't
/// be sent.
pub fn components<D: SharedHandlers>(
    party: &Party<'_, D>,
    input: MessageInput,
    dimensions: Dimensions,
) -> Result<RankRun, String> {
    let lattice = Lattice::new(dimensions, input, party.procs());
    let (len, first) = (lattice.tile(), party.rank() * lattice.tile());
    let inside = |edge: &(usize, usize)| edge.1 / len == party.rank();
    let across: Vec<(usize, usize)> = lattice.edges(party.rank()).filter(|e| !inside(e)).collect();
    let zeros = |n: usize| (0..n).map(|_| AtomicU32::new(0)).collect::<Vec<_>>();
    let labels = Arc::new(Labels {
        first,
        root: zeros(len),
        label: (first..first + len).map(|node| AtomicU32::new(node as u32)).collect(),
        answers: zeros(len.max(across.len())),
    });
    handlers(party, &labels);
    party.meet(false)?;
    let start = party.now();

    let mut forest = Forest::new(len);
    let mut edges = 0;
    for (a, b) in lattice.edges(party.rank()).filter(inside) {
        forest.join(a - first, b - first);
        edges += 1;
    }
    for node in 0..len {
        labels.root[node].store(forest.find(node) as u32, Ordering::Relaxed);
    }
    party.instructions(NODE * len as u64 + EDGE * edges);
    party.meet(false)?;

    // Edges between nodes become edges between supernodes, each of which is needed once.
    let tile = Tile { party, lattice, labels: Arc::clone(&labels) };
    tile.ask(ASK_NODE, across.iter().map(|e| e.1))?;
    let mut between: Vec<(u32, u32)> = across
        .iter()
        .enumerate()
        .map(|(n, e)| (first as u32 + labels.root[e.0 - first].load(Ordering::Relaxed), labels.answer(n)))
        .collect();
    between.sort_unstable();
    between.dedup();
    party.instructions(20 * across.len() as u64);
    party.meet(false)?;
    let rounds = tile.join(between)?;
    let ns = party.now() - start;
    check(&lattice, &labels).map(|text| RankRun {
        ns,
        requests: party.sent(),
        text: format!("{text}, {rounds} rounds"),
    })
}

/// Compares a rank's labels with those of the whole graph.
fn check(lattice: &Lattice, labels: &Labels) -> Result<String, String> {
    let count = lattice.tile_count() * lattice.tile();
    let mut forest = Forest::new(count);
    for tile in 0..lattice.tile_count() {
        lattice.edges(tile).for_each(|(a, b)| forest.join(a, b));
    }
    for node in labels.first..labels.first + labels.root.len() {
        let (found, expected) = (labels.of_node(node), forest.find(node) as u32);
        if found != expected {
            return Err(format!("node {node} has label {found}, not {expected}"));
        }
    }
    let mut sizes = vec![0u32; count];
    (0..count).for_each(|node| sizes[forest.find(node)] += 1);
    let components = sizes.iter().filter(|&&n| n > 0).count();
    let largest = sizes.iter().max().copied().unwrap_or(0);
    Ok(format!("{count} nodes, {components} components, the largest of {largest}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::Size;

    #[test]
    fn tiles_are_as_square_as_their_factors_allow() {
        assert_eq!(tiles(8, 3), [2, 2, 2]);
        assert_eq!(tiles(8, 2), [4, 2, 1]);
        assert_eq!(tiles(6, 2), [3, 2, 1]);
        assert_eq!(tiles(1, 3), [1, 1, 1]);
        assert_eq!(tiles(7, 2), [7, 1, 1]);
    }

    /// A lattice with all edges: all are connected, and each inner border is crossed.
    #[test]
    fn lattice_with_all_edges_is_one_component() {
        for (dimensions, nodes, edges) in
            [(Dimensions::Two, 6 * 64, 2 * 384 - 16 - 24), (Dimensions::Three, 6 * 64, 0)]
        {
            let input = MessageInput { size: Size::Tiny, seed: 1 };
            let lattice = Lattice { percent: 100, ..Lattice::new(dimensions, input, 6) };
            let mut forest = Forest::new(nodes);
            let mut count = 0;
            for tile in 0..6 {
                for (a, b) in lattice.edges(tile) {
                    forest.join(a, b);
                    count += 1;
                }
            }
            assert!((0..nodes).all(|n| forest.find(n) == 0));
            assert!(edges == 0 || count == edges, "{count} edges");
        }
    }

    #[test]
    fn lattices_have_about_as_many_edges_as_asked() {
        let input = MessageInput { size: Size::Medium, seed: 1 };
        for (dimensions, percent, each) in [(Dimensions::Two, 0.4, 2.0), (Dimensions::Three, 0.25, 3.0)] {
            let lattice = Lattice::new(dimensions, input, 1);
            let part = lattice.edges(0).count() as f64 / (each * lattice.tile() as f64);
            assert!((part / percent - 1.0).abs() < 0.06, "{part}");
        }
    }
}
