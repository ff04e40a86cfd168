//! Matching: which posted receive a message belongs to, and which waiting message a
//! receive gets.
//!
//! A receive names a source or takes any, and a tag with bits to be ignored. Receives with the same
//! bits ignored and the same kind of source form a *class*; MPIs use a handful. Within a class a
//! lookup is one hash, so 10,000 posted receives or waiting messages cost no more than ten. Among
//! classes the receive that was posted first wins; a receive takes the message that came first.
//! Where there are more classes than `CLASSES`, the rest share one list.
//!
//! Private memory of one endpoint; nothing here is shared with other processes.

/// Any source.
pub const ANY: u32 = u32::MAX;
const NONE: u32 = u32::MAX;
const CLASSES: usize = 8;
const BUCKETS: usize = 1024;
/// Below so many messages a walk is as fast as an index.
const FEW: usize = 12;

/// Condition of a receive: the messages that it accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatchPattern {
    /// A peer's number, or [`ANY`].
    pub source: u32,
    /// The tag.
    pub tag: u64,
    /// Bits of the tag that don't matter.
    pub ignore: u64,
}

impl MatchPattern {
    #[inline(always)]
    fn accepts(&self, source: u32, tag: u64) -> bool {
        (self.source == ANY || self.source == source) && (self.tag ^ tag) & !self.ignore == 0
    }
    fn class(&self) -> ReceiveClass {
        ReceiveClass { ignore: self.ignore, directed: self.source != ANY }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ReceiveClass {
    ignore: u64,
    directed: bool,
}

impl ReceiveClass {
    #[inline(always)]
    fn bucket(&self, source: u32, tag: u64) -> usize {
        let source = if self.directed { u64::from(source) + 1 } else { 0 };
        let mixed = ((tag & !self.ignore) ^ source << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 54) as usize & (BUCKETS - 1)
    }
}

#[derive(Clone, Copy, Debug)]
struct NodeList {
    head: u32,
    tail: u32,
}

const EMPTY: NodeList = NodeList { head: NONE, tail: NONE };

#[derive(Clone, Copy, Debug)]
struct ListLink {
    prev: u32,
    next: u32,
}

const LOOSE: ListLink = ListLink { prev: NONE, next: NONE };

struct Index {
    class: ReceiveClass,
    count: usize,
    buckets: Box<[NodeList]>,
}

impl Index {
    fn new(class: ReceiveClass) -> Index {
        Index { class, count: 0, buckets: vec![EMPTY; BUCKETS].into_boxed_slice() }
    }
}

struct Posted<R> {
    pattern: MatchPattern,
    order: u64,
    class: u8,
    link: ListLink,
    value: Option<R>,
}

struct UnmatchedMessage<U> {
    source: u32,
    tag: u64,
    /// All in order of arrival, then one for each class.
    links: [ListLink; CLASSES + 1],
    value: Option<U>,
}

/// Posted receives `R` and waiting messages `U`.
pub struct Matcher<R, U> {
    posted: Vec<Posted<R>>,
    free_posted: Vec<u32>,
    /// Class [`CLASSES`]: receives without a class of their own.
    others: NodeList,
    others_count: usize,
    posted_classes: Vec<Index>,
    order: u64,
    waiting: Vec<UnmatchedMessage<U>>,
    free_waiting: Vec<u32>,
    arrivals: NodeList,
    waiting_classes: Vec<Index>,
}

impl<R, U> Default for Matcher<R, U> {
    fn default() -> Self {
        Matcher {
            posted: Vec::new(),
            free_posted: Vec::new(),
            others: EMPTY,
            others_count: 0,
            posted_classes: Vec::new(),
            order: 0,
            waiting: Vec::new(),
            free_waiting: Vec::new(),
            arrivals: EMPTY,
            waiting_classes: Vec::new(),
        }
    }
}

/// A posted receive's or a waiting message's place, until it is taken out.
pub type Place = u32;

impl<R, U> Matcher<R, U> {
    /// Posts a receive.
    pub fn post(&mut self, pattern: MatchPattern, value: R) -> Place {
        let class = pattern.class();
        let known = self.posted_classes.iter().position(|i| i.class == class);
        let class = known.unwrap_or_else(|| {
            if self.posted_classes.len() < CLASSES {
                self.posted_classes.push(Index::new(class));
                self.posted_classes.len() - 1
            } else {
                CLASSES
            }
        });
        let order = self.order;
        self.order += 1;
        let entry = Posted { pattern, order, class: class as u8, link: LOOSE, value: Some(value) };
        let place = match self.free_posted.pop() {
            Some(place) => {
                self.posted[place as usize] = entry;
                place
            }
            None => {
                self.posted.push(entry);
                self.posted.len() as u32 - 1
            }
        };
        let posted = &mut self.posted;
        let list = match self.posted_classes.get_mut(class) {
            Some(index) => {
                index.count += 1;
                &mut index.buckets[index.class.bucket(pattern.source, pattern.tag)]
            }
            None => {
                self.others_count += 1;
                &mut self.others
            }
        };
        append(list, posted, place, |e| &mut e.link);
        place
    }

    /// The receive to which a message belongs.
    #[inline]
    pub fn find_posted(&self, source: u32, tag: u64) -> Option<Place> {
        let mut best: Option<(u64, Place)> = None;
        let mut look = |mut at: u32| {
            while at != NONE {
                let entry = &self.posted[at as usize];
                if entry.pattern.accepts(source, tag) {
                    if best.is_none_or(|(order, _)| entry.order < order) {
                        best = Some((entry.order, at));
                    }
                    return;
                }
                at = entry.link.next;
            }
        };
        for index in self.posted_classes.iter().filter(|i| i.count > 0) {
            look(index.buckets[index.class.bucket(source, tag)].head);
        }
        if self.others_count > 0 {
            look(self.others.head);
        }
        best.map(|(_, place)| place)
    }

    /// A posted receive.
    pub fn posted_mut(&mut self, place: Place) -> Option<&mut R> {
        self.posted.get_mut(place as usize)?.value.as_mut()
    }

    /// Takes a receive out.
    #[inline]
    pub fn take_posted(&mut self, place: Place) -> Option<R> {
        let entry = self.posted.get_mut(place as usize)?;
        let value = entry.value.take()?;
        let (pattern, class) = (entry.pattern, usize::from(entry.class));
        let posted = &mut self.posted;
        let list = match self.posted_classes.get_mut(class) {
            Some(index) => {
                index.count -= 1;
                &mut index.buckets[index.class.bucket(pattern.source, pattern.tag)]
            }
            None => {
                self.others_count -= 1;
                &mut self.others
            }
        };
        unlink(list, posted, place, |e| &mut e.link);
        self.free_posted.push(place);
        Some(value)
    }

    /// The first posted receive for which a question is answered with yes, in the order
    /// of posting.
    pub fn search_posted(&self, mut of: impl FnMut(&MatchPattern, &R) -> bool) -> Option<Place> {
        let fits = self
            .posted
            .iter()
            .enumerate()
            .filter(|(_, e)| e.value.as_ref().is_some_and(|v| of(&e.pattern, v)));
        fits.min_by_key(|(_, e)| e.order).map(|(place, _)| place as Place)
    }

    /// Keeps a message for which there is no receive yet.
    pub fn keep(&mut self, source: u32, tag: u64, value: U) -> Place {
        let entry = UnmatchedMessage { source, tag, links: [LOOSE; CLASSES + 1], value: Some(value) };
        let place = match self.free_waiting.pop() {
            Some(place) => {
                self.waiting[place as usize] = entry;
                place
            }
            None => {
                self.waiting.push(entry);
                self.waiting.len() as u32 - 1
            }
        };
        let waiting = &mut self.waiting;
        append(&mut self.arrivals, waiting, place, |e| &mut e.links[0]);
        for (i, index) in self.waiting_classes.iter_mut().enumerate() {
            let bucket = index.class.bucket(source, tag);
            append(&mut index.buckets[bucket], waiting, place, |e| &mut e.links[i + 1]);
        }
        place
    }

    /// Number of messages in the unexpected queue.
    #[inline(always)]
    pub fn waiting(&self) -> usize {
        self.waiting.len() - self.free_waiting.len()
    }

    /// The message that a receive gets now.
    #[inline]
    pub fn find_waiting(&mut self, pattern: &MatchPattern) -> Option<Place> {
        if self.arrivals.head == NONE {
            return None;
        }
        let class = pattern.class();
        let mut known = self.waiting_classes.iter().position(|i| i.class == class);
        if known.is_none() && self.waiting() > FEW && self.waiting_classes.len() < CLASSES {
            self.index(class);
            known = Some(self.waiting_classes.len() - 1);
        }
        let (mut at, link) = match known {
            Some(i) => {
                (self.waiting_classes[i].buckets[class.bucket(pattern.source, pattern.tag)].head, i + 1)
            }
            None => (self.arrivals.head, 0),
        };
        while at != NONE {
            let entry = &self.waiting[at as usize];
            if entry.value.is_some() && pattern.accepts(entry.source, entry.tag) {
                return Some(at);
            }
            at = entry.links[link].next;
        }
        None
    }

    fn index(&mut self, class: ReceiveClass) {
        let mut index = Index::new(class);
        let link = self.waiting_classes.len() + 1;
        let mut at = self.arrivals.head;
        while at != NONE {
            let entry = &self.waiting[at as usize];
            let (bucket, next) = (class.bucket(entry.source, entry.tag), entry.links[0].next);
            let waiting = &mut self.waiting;
            append(&mut index.buckets[bucket], waiting, at, |e| &mut e.links[link]);
            at = next;
        }
        self.waiting_classes.push(index);
    }

    /// A waiting message.
    pub fn waiting_mut(&mut self, place: Place) -> Option<&mut U> {
        self.waiting.get_mut(place as usize)?.value.as_mut()
    }

    /// Source and tag of a waiting message.
    pub fn envelope(&self, place: Place) -> Option<(u32, u64)> {
        self.waiting.get(place as usize).map(|e| (e.source, e.tag))
    }

    /// Takes a message out.
    pub fn take_waiting(&mut self, place: Place) -> Option<U> {
        let entry = self.waiting.get_mut(place as usize)?;
        let value = entry.value.take()?;
        let (source, tag) = (entry.source, entry.tag);
        let waiting = &mut self.waiting;
        unlink(&mut self.arrivals, waiting, place, |e| &mut e.links[0]);
        for (i, index) in self.waiting_classes.iter_mut().enumerate() {
            let bucket = index.class.bucket(source, tag);
            unlink(&mut index.buckets[bucket], waiting, place, |e| &mut e.links[i + 1]);
        }
        self.free_waiting.push(place);
        Some(value)
    }

    /// The places of all waiting messages for which a question is answered with yes.
    pub fn search_waiting(&self, mut of: impl FnMut(u32, &U) -> bool) -> Vec<Place> {
        let fits = |(place, e): (usize, &UnmatchedMessage<U>)| {
            e.value.as_ref().filter(|v| of(e.source, v)).map(|_| place as Place)
        };
        self.waiting.iter().enumerate().filter_map(fits).collect()
    }
}

#[inline(always)]
fn append<T>(list: &mut NodeList, nodes: &mut [T], place: u32, link: impl Fn(&mut T) -> &mut ListLink) {
    let tail = list.tail;
    *link(&mut nodes[place as usize]) = ListLink { prev: tail, next: NONE };
    match tail {
        NONE => list.head = place,
        _ => link(&mut nodes[tail as usize]).next = place,
    }
    list.tail = place;
}

#[inline(always)]
fn unlink<T>(list: &mut NodeList, nodes: &mut [T], place: u32, link: impl Fn(&mut T) -> &mut ListLink) {
    let ListLink { prev, next } = *link(&mut nodes[place as usize]);
    match prev {
        NONE => list.head = next,
        _ => link(&mut nodes[prev as usize]).next = next,
    }
    match next {
        NONE => list.tail = prev,
        _ => link(&mut nodes[next as usize]).prev = prev,
    }
}

#[cfg(test)]
mod tests;
