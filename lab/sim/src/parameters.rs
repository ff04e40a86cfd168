//! Parameters of a machine: names, units, meanings, and the sources of their values.
//!
//! One table (the macro at the end) makes the structure, the reading of files, `--set`, and the
//! description, so that they cannot disagree.

mod validate;

use crate::event_queue::Time;

/// Source of a value: a mark (S: the paper itself; P: another public source, read; R: one
/// from memory; D: derived; E: estimated; user) and a word about it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ValueSource(pub String);

/// A value as a file or `--set` gives it.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A number without a unit.
    Number(u64),
    /// Anything else: `"100ns"`, `"64KiB"`, `"fifo"`.
    Text(String),
}

/// Kinds of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A length of time: `"5.1ns"`, `"100us"`; kept in picoseconds.
    Time,
    /// An amount of memory: `"128"`, `"64KiB"`, `"infinite"` (kept as 0).
    Bytes,
    /// A number.
    Count,
    /// A word of a list; kept as its place among them.
    Choice(&'static [&'static str]),
}

/// Error in a parameter's value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParameterError {
    /// Unknown parameter.
    #[error("no parameter is called `{name}`{}", suggestion.as_ref().map(|s| format!(": do you mean `{s}`?")).unwrap_or_default())]
    Unknown {
        /// The name as given.
        name: String,
        /// The most similar name.
        suggestion: Option<String>,
    },
    /// The value does not fit.
    #[error("`{name}` is {expected}, not `{found}`")]
    Unfit {
        /// The parameter.
        name: String,
        /// Description of the values that it takes.
        expected: String,
        /// The value as given.
        found: String,
    },
    /// Values don't fit together.
    #[error("{0}")]
    Inconsistent(String),
}

impl Unit {
    /// Describes the values of this kind.
    pub fn expected(self) -> String {
        match self {
            Unit::Time => "a time with its unit, like \"100ns\" (ps, ns, us, ms, s)".into(),
            Unit::Bytes => "an amount of memory, like 128, \"64KiB\" or \"4MiB\", or \"infinite\"".into(),
            Unit::Count => "a whole number".into(),
            Unit::Choice(words) => format!("one of {}", words.join(", ")),
        }
    }

    /// Reads a value. `None` if it does not fit.
    pub fn read(self, value: &Value) -> Option<u64> {
        match (self, value) {
            (Unit::Count | Unit::Bytes, Value::Number(n)) => Some(*n),
            (Unit::Count, Value::Text(text)) => text.replace('_', "").parse().ok(),
            (Unit::Time, Value::Number(0)) => Some(0),
            (Unit::Time, Value::Number(_)) => None,
            (Unit::Time, Value::Text(text)) => read_time(text),
            (Unit::Bytes, Value::Text(text)) => read_bytes(text),
            (Unit::Choice(words), Value::Text(text)) => {
                words.iter().position(|w| w == text).map(|i| i as u64)
            }
            (Unit::Choice(_), Value::Number(_)) => None,
        }
    }

    /// Writes a value as it would be read.
    pub fn write(self, value: u64) -> String {
        match self {
            Unit::Time => write_time(value),
            Unit::Bytes if value == 0 => "infinite".into(),
            Unit::Bytes if value.is_multiple_of(1 << 20) => format!("{}MiB", value >> 20),
            Unit::Bytes if value.is_multiple_of(1 << 10) => format!("{}KiB", value >> 10),
            Unit::Bytes | Unit::Count => value.to_string(),
            Unit::Choice(words) => words.get(value as usize).copied().unwrap_or("?").into(),
        }
    }
}

const TIMES: [(&str, f64); 5] = [("ps", 1.0), ("ns", 1e3), ("us", 1e6), ("ms", 1e9), ("s", 1e12)];

/// Reads a time: a number and its unit. In picoseconds.
pub fn read_time(text: &str) -> Option<Time> {
    let text = text.trim();
    if text == "0" {
        return Some(0);
    }
    let at = text.find(|c: char| c.is_ascii_alphabetic() || c == 'µ')?;
    let (number, unit) = text.split_at(at);
    let unit = unit.trim().replace('µ', "u");
    let (_, factor) = TIMES.iter().find(|(name, _)| *name == unit)?;
    let number: f64 = number.trim().replace('_', "").parse().ok()?;
    let ps = (number * factor).round();
    // A day is more than any simulation lasts.
    (ps.is_finite() && (0.0..=8.64e16).contains(&ps)).then_some(ps as Time)
}

/// Writes a time in the unit that makes it shortest.
pub fn write_time(ps: Time) -> String {
    let (unit, factor) =
        TIMES.iter().rev().find(|(_, f)| ps as f64 >= *f && ps != 0).copied().unwrap_or(("ns", 1e3));
    let digits = format!("{:.3}", ps as f64 / factor);
    format!("{}{unit}", digits.trim_end_matches('0').trim_end_matches('.'))
}

fn read_bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    if text == "infinite" {
        return Some(0);
    }
    let at = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(at);
    let shift = match unit.trim() {
        "" | "B" => 0,
        "K" | "KiB" | "kB" => 10,
        "M" | "MiB" => 20,
        "G" | "GiB" => 30,
        _ => return None,
    };
    number.trim().parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// A parameter, described.
#[derive(Clone, Debug)]
pub struct Described {
    /// Its name, like `network.hop`.
    pub name: &'static str,
    /// Its value, as it would be read.
    pub value: String,
    /// Source of the value.
    pub source: ValueSource,
    /// Meaning of the parameter.
    pub meaning: &'static str,
    /// Kind of machine that it is a part of; empty: every kind.
    pub only: &'static str,
    /// Kind of the value.
    pub unit: Unit,
    /// The value as the simulator uses it: picoseconds, bytes, a number, or the place
    /// among the choices.
    pub number: u64,
}

/// Number of equal letters at equal distances from either end of two names: enough to
/// find slips.
fn likeness(a: &str, b: &str) -> usize {
    let front = a.bytes().zip(b.bytes()).take_while(|(x, y)| x == y).count();
    let back = a.bytes().rev().zip(b.bytes().rev()).take_while(|(x, y)| x == y).count();
    front + back
}

macro_rules! parameters {
    ($( $field:ident $name:literal $unit:expr, $only:literal, $default:literal, $meaning:literal; )*) => {
        /// The parameters of a machine. Times are in picoseconds.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct Parameters {
            /// Name of the machine, for users.
            pub name: String,
            /// Description of the machine.
            pub title: String,
            $( #[doc = $meaning] pub $field: u64, )*
            sources: Vec<ValueSource>,
        }

        /// Name, unit and kind of machine of each.
        const TABLE: &[(&str, Unit, &str, &str)] = &[ $( ($name, $unit, $only, $default), )* ];

        impl Parameters {
            /// Makes a machine with nothing set but the defaults.
            pub(crate) fn empty(name: &str) -> Self {
                let default = |text: &str, unit: Unit| unit.read(&Value::Text(text.into())).unwrap_or(0);
                Parameters {
                    name: name.into(),
                    title: String::new(),
                    $( $field: default($default, $unit), )*
                    sources: vec![ValueSource::default(); TABLE.len()],
                }
            }

            fn slot(&mut self, index: usize) -> &mut u64 {
                let mut slots = [ $( Some(&mut self.$field), )* ];
                slots[index].take().expect("an index into the table")
            }

            /// All parameters that this kind of machine has.
            pub fn describe(&self) -> Vec<Described> {
                let values = [ $( (self.$field, $meaning), )* ];
                TABLE
                    .iter()
                    .zip(values)
                    .zip(&self.sources)
                    .filter(|((row, _), _)| self.has(row.2))
                    .map(|((&(name, unit, only, _), (value, meaning)), source)| Described {
                        name,
                        value: unit.write(value),
                        source: source.clone(),
                        meaning,
                        only,
                        unit,
                        number: value,
                    })
                    .collect()
            }
        }
    };
}

impl Parameters {
    /// Returns whether a parameter of that kind of machine concerns this one.
    fn has(&self, only: &str) -> bool {
        let is = |word: &str| match word {
            "bus" => self.fabric == BUS,
            "moesi" => self.fabric == BUS && self.protocol == MOESI,
            "write-once" => self.fabric == BUS && self.protocol == WRITE_ONCE,
            "directory" => self.fabric == DIRECTORY,
            "none" => self.fabric == NO_COHERENCE,
            "hypercube" => self.fabric == DIRECTORY && self.topology == HYPERCUBE,
            "classes" => self.fabric == DIRECTORY && self.topology == CLASSES,
            "switches" => self.fabric == DIRECTORY && self.topology == SWITCHES,
            "ports" => self.fabric == DIRECTORY && self.topology != CLASSES,
            "forwarding" => self.fabric == DIRECTORY && self.directory_protocol == FORWARDING,
            "messages" => self.messages != NO_MESSAGES,
            _ => true,
        };
        only.split(' ').all(is)
    }

    /// Sets a parameter by its name.
    ///
    /// # Errors
    ///
    /// If there is none of that name, or the value does not fit.
    pub fn set(&mut self, name: &str, value: &Value, source: ValueSource) -> Result<(), ParameterError> {
        let Some(index) = TABLE.iter().position(|row| row.0 == name) else {
            let like = TABLE.iter().map(|row| (likeness(row.0, name), row.0)).max();
            let suggestion = like.filter(|(n, _)| *n >= 4).map(|(_, s)| s.to_owned());
            return Err(ParameterError::Unknown { name: name.into(), suggestion });
        };
        let unit = TABLE[index].1;
        let found = match value {
            Value::Number(n) => n.to_string(),
            Value::Text(text) => text.clone(),
        };
        let unfit = || ParameterError::Unfit { name: name.into(), expected: unit.expected(), found };
        let read = unit.read(value).ok_or_else(unfit)?;
        *self.slot(index) = read;
        self.sources[index] = source;
        Ok(())
    }

    /// Sets a parameter as `--set NAME=VALUE` does.
    ///
    /// # Errors
    ///
    /// As [`Parameters::set`], and if there is no `=`.
    pub fn set_from_text(&mut self, text: &str) -> Result<(), ParameterError> {
        let Some((name, value)) = text.split_once('=') else {
            let text = format!("`{text}` is not of the form NAME=VALUE, like network.hop=100ns");
            return Err(ParameterError::Inconsistent(text));
        };
        let source = ValueSource("user: --set".into());
        self.set(name.trim(), &Value::Text(value.trim().into()), source)?;
        self.check()
    }

    /// Returns the parameters of this kind of machine that have neither a value nor a
    /// default.
    pub(crate) fn missing(&self) -> Vec<&'static str> {
        TABLE
            .iter()
            .zip(&self.sources)
            .filter(|(row, source)| row.3.is_empty() && source.0.is_empty() && self.has(row.2))
            .map(|(row, _)| row.0)
            .collect()
    }
}

/// `fabric`.
pub const BUS: u64 = 0;
/// `fabric`.
pub const DIRECTORY: u64 = 1;
/// `fabric`: nothing keeps the caches coherent.
pub const NO_COHERENCE: u64 = 2;
/// `bus.protocol`: split transactions, lines are owned.
pub const MOESI: u64 = 0;
/// `bus.protocol`: the first write to a line goes through to memory, and the bus is held
/// for each transaction.
pub const WRITE_ONCE: u64 = 1;
/// `processor.dcas`: there is none.
pub const NO_DCAS: u64 = 0;
/// `processor.dcas`: load-linked and store-conditional on two words.
pub const LLP_SCP: u64 = 1;
/// `processor.dcas`: one instruction, past the cache.
pub const CAS2: u64 = 2;
/// `processor.advisory`: there is none.
pub const NO_ADVISORY: u64 = 0;
/// `os.active_counts`: there is none.
pub const NO_COUNTS: u64 = 0;
/// `os.roll_back`: it does not.
pub const NO_ROLL_BACK: u64 = 0;
/// `os.mutex_handover`: a released mutex is free while a woken sleeper has yet to run.
pub const NO_HANDOVER: u64 = 0;
/// `network.topology`.
pub const HYPERCUBE: u64 = 0;
/// `network.topology`.
pub const CLASSES: u64 = 1;
/// `network.topology`: crossbar switches, one or a mesh of them.
pub const SWITCHES: u64 = 2;
/// `memory.placement`: lines without a home of their own lie at the first node.
pub const FIRST_TOUCH: u64 = 1;
/// `memory.placement`: at most an equal share of the pages at the first node.
pub const FIRST_SHARE: u64 = 2;
/// `memory.locks`: all at the first node.
pub const LOCKS_AT_FIRST: u64 = 1;
/// `directory.protocol`: owners reply to requesters, sharers acknowledge to writers.
pub const FORWARDING: u64 = 0;
/// `directory.protocol`: owners and sharers answer the home, which blocks the line and
/// replies itself.
pub const BLOCKING: u64 = 1;
/// `message.handler`: the machine has no messages.
pub const NO_MESSAGES: u64 = 0;
/// `message.handler`: the user's process, by a signal.
pub const USER: u64 = 2;
/// `processor.atomics`: cached atomics are loops of load-linked and store-conditional.
pub const LL_SC: u64 = 1;
/// `directory.busy`.
pub const NACK: u64 = 0;
/// `directory.service`.
pub const FIFO: u64 = 0;
/// `directory.service`: the oldest request of the home's own node, else the oldest.
pub const LOCAL_FIRST: u64 = 2;
/// `processor.fetch_add`: loops of a load and a compare-and-swap.
pub const BY_EXCHANGE: u64 = 1;
/// `processor.reservation`: a miss between load-linked and store-conditional loses it.
pub const NO_MISS: u64 = 1;
/// `os.policy`.
pub const GANG: u64 = 1;
/// `os.blocking`: a waiter that blocks lets others run, and looks again at its turn.
pub const YIELD: u64 = 1;

parameters! {
    processors "processor.count" Unit::Count, "", "", "processors of the whole machine";
    per_node "processor.per_node" Unit::Count, "", "1", "processors at one node, behind one hub";
    load "processor.load" Unit::Time, "", "", "a load that hits";
    store "processor.store" Unit::Time, "", "", "a store that hits";
    atomics "processor.atomics" Unit::Choice(&["native", "ll-sc"]), "", "native", "of what exchange, compare-and-swap and fetch-and-add on cached words are made";
    fetch_add "processor.fetch_add" Unit::Choice(&["native", "exchange"]), "", "native", "of what fetch-and-add, -or and -and on cached words are made: instructions, or loops of a load and a compare-and-swap";
    rmw "processor.rmw" Unit::Time, "", "", "an exchange, compare-and-swap or fetch-and-add on a line that the cache owns (without coherence: test&set, at memory)";
    linked "processor.load_linked" Unit::Time, "", "5ns", "a load-linked that hits";
    conditional "processor.store_conditional" Unit::Time, "", "5ns", "a store-conditional on a line that the cache owns, or one that fails at once";
    reservation "processor.reservation" Unit::Choice(&["line", "no-miss"]), "", "line", "what a load-linked's reservation stands: everything but the loss of its line, or no other miss either";
    spin "processor.spin" Unit::Time, "", "", "one iteration of a spin loop that hits";
    cycle "processor.cycle" Unit::Time, "", "0", "a cycle, for papers that give times in cycles (0: not given)";
    own "processor.own_instruction" Unit::Time, "", "0", "an instruction that an application names of its own computation (0: a cycle)";
    instructions "processor.instructions" Unit::Time, "", "0", "instructions around each load, store, atomic operation or DCAS, beside what it takes itself";
    dcas "processor.dcas" Unit::Choice(&["none", "llp-scp", "cas2"]), "", "none", "double compare-and-swap: none, load-linked and store-conditional on two words, or one instruction past the cache";
    dcas_cost "processor.dcas_cost" Unit::Time, "", "0", "a double compare-and-swap, beside its references to memory";
    advisory "processor.advisory" Unit::Choice(&["none", "line"]), "", "none", "advisory locks, taken by a load and given up by any store: none, or a bit of each line";
    advisory_cost "processor.advisory_cost" Unit::Time, "", "0", "an advisory load, beside the load";
    store_buffer "processor.store_buffer" Unit::Count, "", "0", "stores that a processor goes on without waiting for (0: it waits for each); updates and fences wait for all";
    store_window "processor.store_window" Unit::Time, "", "0", "shortest computation that waits for buffered stores, for which loads wait, too: sequential consistency (0: none does, and loads pass stores: total store order)";
    misses "processor.misses" Unit::Count, "forwarding", "1", "buffered stores that have their lines on the way at one time";
    fence "processor.fence" Unit::Time, "", "0", "a memory fence (without coherence: a synchronising instruction, when the own stores are visible)";
    line "cache.line" Unit::Bytes, "", "", "a cache line, the unit of coherence";
    cache_size "cache.size" Unit::Bytes, "", "infinite", "a processor's cache";
    ways "cache.ways" Unit::Count, "", "1", "lines in a set";
    fabric "fabric" Unit::Choice(&["bus", "directory", "none"]), "", "", "what keeps the caches coherent: a snooping bus, directories, or nothing";
    placement "memory.placement" Unit::Choice(&["in-turn", "first-touch", "first-share"]), "directory", "in-turn", "where lines lie without a home of their own: at the nodes in turn, all at the first node, whose thread makes them, or there up to an equal share of the pages of 4 KiB, and the other pages at the other nodes in turn";
    lock_homes "memory.locks" Unit::Choice(&["in-turn", "first-node"]), "switches", "in-turn", "where paper K's locks in shared memory lie: at the nodes in turn, or all at the first node";
    protocol "bus.protocol" Unit::Choice(&["moesi", "write-once"]), "bus", "moesi", "split transactions with owned lines, or a bus that is held for each transaction, with write-once";
    bus_address "bus.address" Unit::Time, "moesi", "", "time between two address slots";
    bus_snoop "bus.snoop" Unit::Time, "moesi", "", "from the address to the snoop's result";
    bus_data "bus.data" Unit::Time, "moesi", "", "occupancy of the data lines by one cache line";
    bus_memory "bus.memory" Unit::Time, "bus", "", "from the address to the line's arrival from memory (write-once: how long that holds the bus)";
    bus_transfer "bus.cache_to_cache" Unit::Time, "moesi", "", "from the address to the line's arrival from another cache";
    bus_upgrade "bus.upgrade" Unit::Time, "moesi", "", "from the address to the end of an upgrade without data";
    bus_write "bus.write" Unit::Time, "write-once", "", "how long a word that is written through to memory holds the bus";
    bus_write_back "bus.write_back" Unit::Time, "write-once", "", "how long a changed line that goes back to memory holds the bus";
    banks "memory.banks" Unit::Count, "moesi", "1", "banks of memory";
    bank_busy "memory.bank_busy" Unit::Time, "moesi", "0", "a bank's occupancy by one cache line";
    flush "cache.flush" Unit::Time, "none", "", "writing the whole cache back and emptying it";
    memory_latency "memory.latency" Unit::Time, "none", "", "a load past the cache, or the beginning of a vector move";
    copy_kib "memory.copy_kib" Unit::Time, "none", "", "a vector move of 1 KiB into or out of shared memory";
    window "memory.window" Unit::Time, "none", "", "how late a store becomes visible, and how early a load is performed, between synchronising instructions";
    update "memory.update" Unit::Time, "none", "", "an update other than test&set (compare-and-swap, fetch-and-add), under a test&set of its own";
    topology "network.topology" Unit::Choice(&["hypercube", "classes", "switches"]), "directory", "", "hypercube of routers, a latency for each class of distance, or crossbar switches (one, or a mesh of them)";
    to_hub "network.processor_to_hub" Unit::Time, "directory", "", "from a processor to its hub (classes: to the directory slice)";
    to_processor "network.hub_to_processor" Unit::Time, "directory", "0", "from a hub to one of its processors";
    nodes_per_router "network.nodes_per_router" Unit::Count, "hypercube", "1", "nodes at one router";
    first_router "network.first_router" Unit::Time, "hypercube", "", "one way, hub to hub, through one router";
    hop "network.hop" Unit::Time, "hypercube", "", "each further router, one way";
    port_data "network.port_data" Unit::Time, "ports", "0", "occupancy of a hub's (or switch's) port by a message with a line";
    port_request "network.port_request" Unit::Time, "ports", "0", "occupancy of a hub's (or switch's) port by a message without data";
    bisection "network.bisection" Unit::Time, "hypercube", "0", "occupancy of the bisection by a message that crosses it (0: not a limit)";
    fall_through "network.fall_through" Unit::Time, "switches", "", "one switch, from its input to its output";
    propagation "network.propagation" Unit::Time, "switches", "", "one link, between a node and a switch or two switches";
    one_switch "network.one_switch" Unit::Count, "switches", "16", "most nodes that hang on a single switch; more hang on a mesh of switches";
    nodes_per_switch "network.nodes_per_switch" Unit::Count, "switches", "8", "nodes at each switch of a mesh";
    group "network.group" Unit::Count, "classes", "", "processors that share a last-level cache";
    socket "network.socket" Unit::Count, "classes", "", "processors of a socket";
    within_group "network.within_group" Unit::Time, "classes", "", "a line from another cache of the group";
    within_socket "network.within_socket" Unit::Time, "classes", "", "a line from a cache of another group of the socket";
    across "network.across" Unit::Time, "classes", "", "a line from a cache of another socket";
    memory_near "memory.near" Unit::Time, "classes", "", "a line from the memory of the own socket";
    memory_far "memory.far" Unit::Time, "classes", "", "a line from the memory of another socket";
    directory_protocol "directory.protocol" Unit::Choice(&["forwarding", "blocking"]), "directory", "forwarding", "owners reply to requesters themselves, or answer the home, which blocks the line and replies";
    directory_latency "directory.latency" Unit::Time, "directory", "", "memory and directory, until the reply leaves";
    occupancy_data "directory.occupancy_data" Unit::Time, "directory", "", "occupancy of a home by a request that moves a line";
    occupancy_lookup "directory.occupancy_lookup" Unit::Time, "directory", "", "occupancy of a home by a request that doesn't (an upgrade, a refusal)";
    occupancy_invalidation "directory.occupancy_invalidation" Unit::Time, "forwarding", "0", "occupancy of a home by each invalidation that it sends";
    owner_access "directory.owner_access" Unit::Time, "directory", "0", "an owner's cache, from an intervention to the line";
    transactions "directory.transactions" Unit::Count, "switches", "0", "transactions that wait for answers at one home at a time (0: any number)";
    busy "directory.busy" Unit::Choice(&["nack", "queue"]), "forwarding", "queue", "what happens to a request for a line that is in the middle of another one";
    retry "directory.retry" Unit::Time, "forwarding", "100ns", "how long a processor waits before it sends a refused request again";
    service "directory.service" Unit::Choice(&["fifo", "random", "local-first"]), "forwarding", "fifo", "in which order a home serves the requests that wait for it";
    fetch_latency "fetch_op.latency" Unit::Time, "directory", "100ns", "an operation at memory, until the reply leaves";
    fetch_occupancy "fetch_op.occupancy" Unit::Time, "directory", "100ns", "occupancy of a home by an operation at memory on a variable in the fetch-op cache";
    fetch_miss "fetch_op.occupancy_miss" Unit::Time, "directory", "100ns", "occupancy by one on a variable that isn't";
    fetch_entries "fetch_op.entries" Unit::Count, "directory", "1", "entries of a hub's fetch-op cache";
    fetch_poll "fetch_op.poll" Unit::Time, "", "0", "pause between two polls of a word at memory";
    policy "os.policy" Unit::Choice(&["time-sharing", "gang"]), "", "time-sharing", "how the operating system shares processors among threads";
    quantum "os.quantum" Unit::Time, "", "100ms", "a time slice";
    switch "os.switch" Unit::Time, "", "10us", "a context switch";
    block "os.block" Unit::Time, "", "5us", "the system call that blocks a thread, before the switch";
    wake "os.wake" Unit::Time, "", "5us", "the system call that wakes a thread, and until that one may run";
    mutex_path "os.mutex" Unit::Time, "", "0.3us", "the instructions of locking, or of unlocking, the operating system's mutex";
    mutex_handover "os.mutex_handover" Unit::Choice(&["no", "yes"]), "", "no", "whether the operating system's mutex is handed to the sleeper that a release wakes, so that no other may take it before";
    system_call "os.system_call" Unit::Time, "", "1us", "a system call that has nothing to do";
    semaphore "os.semaphore" Unit::Time, "", "1us", "an operation on a System V semaphore that need not wait";
    blocking "os.blocking" Unit::Choice(&["sleep", "yield"]), "", "sleep", "what a waiter does that blocks: it sleeps until it is woken, or lets others run and then looks again";
    grace "os.grace" Unit::Time, "", "0", "how long a thread that asks not to be preempted may run on when its time slice has ended";
    active_counts "os.active_counts" Unit::Choice(&["no", "yes"]), "", "no", "whether the system keeps counts of active threads: takes a thread that it switches out off its count";
    roll_back "os.roll_back" Unit::Choice(&["no", "yes"]), "", "no", "whether the system knows locks: puts back what a holder that it switches out has stored tentatively, and frees the lock";
    interrupt_every "os.interrupt_every" Unit::Time, "", "0", "time between two interrupts of a processor (0: none)";
    interrupt_cost "os.interrupt_cost" Unit::Time, "", "0", "what an interrupt takes from the running thread";
    messages "message.handler" Unit::Choice(&["none", "kernel", "user"]), "", "none", "where messages are handled that their receiver does not wait for: in its kernel, or in its process, by a signal (none: there are no messages)";
    message_call "message.system_call" Unit::Time, "messages", "", "a light-weight system call, with what the kernel does in it";
    message_send "message.send" Unit::Time, "messages", "", "sending a message, beside the system call or the interrupt in which that happens";
    message_interface "message.interface" Unit::Time, "messages", "", "network interfaces of sender and receiver, for each message";
    message_interrupt "message.interrupt" Unit::Time, "messages", "", "an interrupt by a message: entry, what the kernel does with the message, and exit";
    message_poll "message.poll" Unit::Time, "messages", "", "a look at a notification in the receiver's own memory";
    message_signal "message.signal" Unit::Time, "messages", "", "a signal to the user's process, if that handles messages";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        for (text, ps) in [
            ("5.1ns", Some(5_100)),
            ("100 us", Some(100_000_000)),
            ("0", Some(0)),
            ("7µs", Some(7_000_000)),
            ("1_000ps", Some(1000)),
            ("5", None),
            ("ns", None),
            ("-3ns", None),
            ("1e99s", None),
            ("5 lightyears", None),
        ] {
            assert_eq!(read_time(text), ps, "{text}");
        }
        for ps in [0, 5_130, 100_000_000, 1, 999, 160_000] {
            assert_eq!(read_time(&write_time(ps)), Some(ps), "{}", write_time(ps));
        }
    }

    #[test]
    fn sizes_have_units() {
        for (text, bytes) in [
            ("128", Some(128)),
            ("64KiB", Some(65536)),
            ("infinite", Some(0)),
            ("4 MiB", Some(4 << 20)),
            ("4XB", None),
        ] {
            assert_eq!(Unit::Bytes.read(&Value::Text(text.into())), bytes, "{text}");
        }
        assert_eq!(Unit::Bytes.write(512 << 10), "512KiB");
    }

    #[test]
    fn what_does_not_fit_is_explained() {
        let mut p = Parameters::empty("x");
        let error = |p: &mut Parameters, text: &str| p.set_from_text(text).unwrap_err().to_string();
        assert!(error(&mut p, "network.hops=1ns").contains("do you mean `network.hop`?"));
        assert!(error(&mut p, "network.hop=100").contains("a time with its unit"));
        assert!(error(&mut p, "directory.service=lifo").contains("one of fifo, random"));
        assert!(error(&mut p, "network.hop").contains("NAME=VALUE"));
        assert!(error(&mut p, "zzzz=1").contains("no parameter is called `zzzz`"));
    }

    #[test]
    fn names_are_unique_and_defaults_fit() {
        for (i, row) in TABLE.iter().enumerate() {
            assert!(TABLE[..i].iter().all(|other| other.0 != row.0), "{}", row.0);
            assert!(row.3.is_empty() || row.1.read(&Value::Text(row.3.into())).is_some(), "{}", row.0);
        }
    }
}
