//! Hub of a job: waits for the other hosts, and gives each its ranks.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};

use towpath::WorldConfig;
use towpath_hosts::Hosts;
use towpath_net::{Incoming, Key, Link, Listener};
use towpath_shm::World;

use crate::CommandFailure;
use crate::output::remark;
use crate::run::signals::Signals;
use crate::run::supervisor::Parent;
use crate::run::{Arguments, OnDeath, config, make_world};

use super::meeting::{HostMeeting, MeetingNews, Messenger};
use super::note::{JobTerms, LaunchNote, Versions};
use super::ssh::{self, NamedHost, RemoteShell};
use super::{MOVE_TO_FABRIC, PURPOSE, failed, own_name};

/// Maximum number of peers with which a listener talks at a time, beside the expected.
const MAX_STRANGERS: usize = 64;

/// Hosts of a job that are ready.
pub struct Gathered {
    pub hosts: Hosts,
    pub names: Vec<String>,
    pub world: World,
    pub links: Vec<(usize, Link)>,
    pub shells: Vec<RemoteShell>,
}

/// News of a host that joins.
enum HubNews {
    /// A peer has said hello.
    Came(Newcomer),
    /// The host at this place has its segment.
    Ready(usize, Box<Link>),
    /// The host at this place can't take part.
    NotReady(usize, String),
    /// A peer could not be understood.
    Stranger(String),
    /// No peer can connect any more.
    NoListener(String),
}

/// Host that wants to join.
struct Newcomer {
    versions: Versions,
    ranks: u32,
    place: Option<usize>,
    name: String,
    peer: SocketAddr,
    answer: Sender<LaunchNote>,
}

/// Waits until the other hosts have joined and are ready.
pub fn gather(arguments: &Arguments, parent: &Parent, signals: &Signals) -> Result<Gathered, CommandFailure> {
    let span = &arguments.span;
    let (own_ranks, named) = match &span.hosts {
        Some(text) => ssh::parse_hosts(text).and_then(ssh::split).map_err(failed)?,
        None => (arguments.processes.unwrap_or(1), Vec::new()),
    };
    let by_hand = span.hosts.is_none();
    if !by_hand && named.is_empty() {
        return Err(failed("--hosts names this host only: use -n"));
    }
    let expected = if by_hand { span.expect as usize } else { named.len() };
    let key = if by_hand { span.needed_key()? } else { span.key()?.unwrap_or_else(Key::generate) };
    let meeting = HostMeeting::new(parent, signals)?;
    let addresses = listen(&meeting, span.listen, &named, expected, &key, span.provider())?;
    if by_hand {
        let (address, hosts) = (addresses[0], if expected == 1 { "a host" } else { "hosts" });
        remark!("towpath: waiting at {address} for {hosts} to join ({expected})");
    }
    let mut shells = Vec::new();
    for (place, (host, address)) in (1..).zip(named.iter().zip(addresses)) {
        match RemoteShell::start(arguments, host, place, address, &key, signals) {
            Ok(shell) => shells.push(shell),
            Err(error) => {
                end(&mut shells);
                return Err(error);
            }
        }
    }
    let gathered = meet(arguments, &meeting, own_ranks, &named, expected, &mut shells);
    if gathered.is_err() {
        end(&mut shells);
    }
    let (hosts, names, world, links) = gathered?;
    Ok(Gathered { hosts, names, world, links, shells })
}

/// Listens where other hosts are to join. Returns the address for each of the named
/// ones, or one.
fn listen(
    meeting: &HostMeeting<'_, HubNews>,
    listen: Option<SocketAddr>,
    named: &[NamedHost],
    expected: usize,
    key: &Key,
    provider: Option<String>,
) -> Result<Vec<SocketAddr>, CommandFailure> {
    let wanted: Vec<SocketAddr> = match listen {
        Some(address) if !named.is_empty() && address.ip().is_unspecified() => {
            return Err(failed(
                "--listen: with --hosts, name the address at which the other hosts can reach this one",
            ));
        }
        Some(address) => vec![address; named.len().max(1)],
        None => named
            .iter()
            .map(|host| ssh::address_towards(&host.name))
            .collect::<Result<_, _>>()
            .map_err(failed)?,
    };
    let mut bound: Vec<(SocketAddr, SocketAddr)> = Vec::new();
    let mut addresses = Vec::new();
    for address in wanted {
        if let Some((_, known)) = bound.iter().find(|(wanted, _)| *wanted == address) {
            addresses.push(*known);
            continue;
        }
        let listener = Listener::bind(address, key, PURPOSE).map_err(failed)?;
        bound.push((address, listener.address()));
        addresses.push(listener.address());
        let provider = provider.clone();
        meeting.start(move |messenger| accept(&listener, expected, provider.as_deref(), &messenger))?;
    }
    Ok(addresses)
}

/// Accepts peers to the end of the launcher. Late ones are told so.
fn accept(listener: &Listener, expected: usize, provider: Option<&str>, messenger: &Messenger<HubNews>) {
    // Each thread has a clone.
    let talking = Arc::new(());
    loop {
        match listener.accept() {
            // Their connections are closed. Only one that has the key is waited for longer than for
            // the handshake.
            Ok(_) if Arc::strong_count(&talking) > expected + MAX_STRANGERS => {}
            Ok(incoming) => {
                let (messenger, talking) = (messenger.clone(), Arc::clone(&talking));
                let provider = provider.map(str::to_owned);
                let thread = std::thread::Builder::new().name("towpath-newcomer".into());
                // Without a thread for it, the peer finds its connection closed.
                let _ = thread.spawn(move || {
                    welcome(incoming, provider.as_deref(), &messenger);
                    drop(talking);
                });
            }
            Err(error) => return messenger.send(HubNews::NoListener(error.to_string())),
        }
    }
}

/// Talks with a peer until it is ready.
fn welcome(incoming: Incoming, provider: Option<&str>, messenger: &Messenger<HubNews>) {
    let peer = incoming.peer();
    let mut link = match incoming.handshake() {
        Ok(link) => link,
        Err(error) => return messenger.send(HubNews::Stranger(error.to_string())),
    };
    let mut frame = Vec::new();
    let hello = link.receive(&mut frame).ok().and_then(|()| LaunchNote::from_bytes(&frame));
    let Some(LaunchNote::Hello { versions, ranks, place, name }) = hello else {
        return messenger.send(HubNews::Stranger(format!("{peer} said something else than hello")));
    };
    let (answer, answered) = channel();
    messenger.send(HubNews::Came(Newcomer { versions, ranks, place, name, peer, answer }));
    let note =
        answered.recv().unwrap_or_else(|_| LaunchNote::Refused("all hosts of this job have come".into()));
    let sent = link.send(&note.to_bytes());
    let LaunchNote::Welcome { place, .. } = note else { return };
    let ready = sent.and_then(|()| link.receive(&mut frame));
    messenger.send(match (ready, LaunchNote::from_bytes(&frame)) {
        (Ok(()), Some(LaunchNote::Ready)) => {
            let moved = match provider {
                Some(provider) => link.over_fabric(provider, MOVE_TO_FABRIC),
                None => Ok(link),
            };
            moved.map_or_else(
                |error| HubNews::NotReady(place, error.to_string()),
                |link| HubNews::Ready(place, Box::new(link)),
            )
        }
        (Ok(()), Some(LaunchNote::Failed(why))) => HubNews::NotReady(place, why),
        (Ok(()), _) => HubNews::NotReady(place, "it said something else than ready".into()),
        (Err(error), _) => HubNews::NotReady(place, error.to_string()),
    });
}

type Met = (Hosts, Vec<String>, World, Vec<(usize, Link)>);

/// Waits for hellos, welcomes all, and waits until all are ready.
fn meet(
    arguments: &Arguments,
    meeting: &HostMeeting<'_, HubNews>,
    own_ranks: u32,
    named: &[NamedHost],
    expected: usize,
    shells: &mut [RemoteShell],
) -> Result<Met, CommandFailure> {
    let mut newcomers: Vec<Option<Newcomer>> = (0..expected).map(|_| None).collect();
    while newcomers.iter().any(Option::is_none) {
        match meeting.wait()? {
            MeetingNews::Left(HubNews::Came(newcomer)) => {
                let name = newcomer.name.clone();
                match place_of(&newcomer, named, &newcomers) {
                    Ok(place) => newcomers[place - 1] = Some(newcomer),
                    Err(why) if named.is_empty() => {
                        remark!("towpath: {name} ({}) can't join: {why}", newcomer.peer);
                        let _ = newcomer.answer.send(LaunchNote::Refused(why));
                    }
                    Err(why) => return Err(failed(format!("{name}: {why}"))),
                }
            }
            news => other_news(news, named, shells)?,
        }
    }
    let newcomers: Vec<Newcomer> = newcomers.into_iter().flatten().collect();
    let ranks: Vec<u32> = [own_ranks].into_iter().chain(newcomers.iter().map(|n| n.ranks)).collect();
    let hosts = Hosts::new(&ranks, 0).map_err(failed)?;
    let config: WorldConfig = config(arguments, hosts.size()).map_err(failed)?;
    let world = make_world(arguments, &config, hosts.ranks(0)).map_err(failed)?;
    let of_joiner = |(newcomer, place): (&Newcomer, usize)| match named.get(place) {
        Some(host) => host.name.clone(),
        None => newcomer.name.clone(),
    };
    let names: Vec<String> =
        [own_name()].into_iter().chain(newcomers.iter().zip(0..).map(of_joiner)).collect();
    let terms = JobTerms {
        ranks,
        names: names.clone(),
        params: config.params(),
        stops_on_failure: arguments.on_death == OnDeath::Kill,
        grace: u64::try_from(arguments.grace.as_millis()).unwrap_or(u64::MAX),
        provider: arguments.span.provider(),
    };
    for (newcomer, place) in newcomers.iter().zip(1..) {
        // Its thread tells if it is gone.
        let _ = newcomer.answer.send(LaunchNote::Welcome { terms: terms.clone(), place });
    }
    let mut links: Vec<(usize, Link)> = Vec::new();
    while links.len() < expected {
        match meeting.wait()? {
            MeetingNews::Left(HubNews::Ready(place, link)) => links.push((place, *link)),
            MeetingNews::Left(HubNews::NotReady(place, why)) => {
                return Err(failed(format!("{} can't take part: {why}", names[place])));
            }
            MeetingNews::Left(HubNews::Came(newcomer)) => {
                let _ = newcomer.answer.send(LaunchNote::Refused("all hosts of this job have come".into()));
            }
            news => other_news(news, named, shells)?,
        }
    }
    for (place, link) in &mut links {
        link.send(&LaunchNote::Start.to_bytes())
            .map_err(|error| failed(format!("{} is lost: {error}", names[*place])))?;
    }
    links.sort_by_key(|(place, _)| *place);
    Ok((hosts, names, world, links))
}

/// Place of a newcomer, or the reason why it has none.
fn place_of(
    newcomer: &Newcomer,
    named: &[NamedHost],
    newcomers: &[Option<Newcomer>],
) -> Result<usize, String> {
    if newcomer.versions != Versions::own() {
        return Err("it has another version of Towpath: all hosts need the same".into());
    }
    if !(1..=4096).contains(&newcomer.ranks) {
        return Err(format!("{} ranks: it needs 1 to 4096", newcomer.ranks));
    }
    let is_free = |place: &usize| matches!(newcomers.get(place - 1), Some(None));
    match (newcomer.place, named) {
        (None, []) => (1..=newcomers.len()).find(is_free).ok_or_else(|| "all hosts have come".into()),
        (Some(place), [_, ..]) => match named.get(place.wrapping_sub(1)) {
            Some(host) if host.ranks == newcomer.ranks && is_free(&place) => Ok(place),
            _ => Err("it has come twice, or with other ranks than it was given".into()),
        },
        _ => Err("it was started for another job".into()),
    }
}

/// News that are the same before and after all have come.
fn other_news(
    news: MeetingNews<HubNews>,
    named: &[NamedHost],
    shells: &mut [RemoteShell],
) -> Result<(), CommandFailure> {
    match news {
        MeetingNews::Left(HubNews::Stranger(why)) => remark!("towpath: {why}"),
        MeetingNews::Left(HubNews::NoListener(why)) => return Err(failed(why)),
        MeetingNews::Left(_) => {}
        MeetingNews::ChildEnded(pid) => match shells.iter_mut().find(|shell| shell.child.id() == pid) {
            None => _ = crate::run::children::reap(pid),
            Some(shell) => {
                let how =
                    shell.child.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
                return Err(failed(format!(
                    "{}: the remote shell ended before the host had joined ({how}): see above; --ssh and --remote-towpath name other commands",
                    named[shell.host - 1].name
                )));
            }
        },
    }
    Ok(())
}

/// Ends remote shells: their hosts lose the connection, and end.
fn end(shells: &mut Vec<RemoteShell>) {
    for mut shell in shells.drain(..) {
        let _ = shell.child.kill();
        let _ = shell.child.wait();
    }
}
