//! Joiner of a job: connects to the hub, and learns its ranks.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use towpath::WorldConfig;
use towpath_hosts::Hosts;
use towpath_net::{Key, Link};
use towpath_shm::World;

use crate::CommandFailure;
use crate::output::remark;
use crate::run::signals::Signals;
use crate::run::supervisor::Parent;
use crate::run::{Arguments, children, make_world};

use super::meeting::{HostMeeting, MeetingNews};
use super::note::{JobTerms, LaunchNote, Versions};
use super::{MOVE_TO_FABRIC, PURPOSE, failed, own_name};

/// Longest time of one attempt to connect.
const ATTEMPT: Duration = Duration::from_secs(5);
/// Time for which a hub that does not listen yet is tried again.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time between two attempts.
const PAUSE: Duration = Duration::from_millis(200);

/// A host that is ready.
pub struct Joined {
    pub hosts: Hosts,
    pub terms: JobTerms,
    pub world: World,
    pub link: Link,
}

/// News of the hub.
enum HubSays {
    /// Reason why it can't be reached yet.
    NotYet(String),
    Welcome(Box<(Link, JobTerms, usize)>),
    Start(Box<Link>),
    No(String),
}

/// Joins the job of a hub, and waits until all of its hosts are ready.
pub fn join(arguments: &Arguments, parent: &Parent, signals: &Signals) -> Result<Joined, CommandFailure> {
    let span = &arguments.span;
    let Some(hub) = span.join else { return Err(failed("--join: no address")) };
    let key = span.needed_key()?;
    let ranks = arguments.processes.unwrap_or(1);
    let hello = LaunchNote::Hello { versions: Versions::own(), ranks, place: span.place, name: own_name() };
    let meeting = HostMeeting::new(parent, signals)?;
    meeting.start(move |messenger| {
        let mut link = match connect(hub, &key, |why| messenger.send(HubSays::NotYet(why))) {
            Ok(link) => link,
            Err(why) => return messenger.send(HubSays::No(why)),
        };
        let mut frame = Vec::new();
        let answer = link.send(&hello.to_bytes()).and_then(|()| link.receive(&mut frame));
        messenger.send(match (answer, LaunchNote::from_bytes(&frame)) {
            (Ok(()), Some(LaunchNote::Welcome { terms, place })) => {
                HubSays::Welcome(Box::new((link, terms, place)))
            }
            (Ok(()), Some(LaunchNote::Refused(why))) => HubSays::No(format!("{hub} refuses: {why}")),
            (Ok(()), _) => HubSays::No(format!("{hub} answers something else than it should")),
            (Err(error), _) => HubSays::No(error.to_string()),
        });
    })?;
    let (mut link, terms, place) = loop {
        match next(&meeting)? {
            HubSays::Welcome(welcome) => break *welcome,
            HubSays::NotYet(why) => remark!("towpath: {why}; trying again for {} s", PATIENCE.as_secs()),
            HubSays::Start(_) => return Err(failed(format!("{hub} answers something else than it should"))),
            HubSays::No(why) => return Err(failed(why)),
        }
    };
    let (hosts, world) = match take_part(arguments, &terms, place, ranks) {
        Ok(part) => part,
        Err(why) => {
            // A hub that is gone needs no answer.
            let _ = link.send(&LaunchNote::Failed(why.clone()).to_bytes());
            return Err(failed(why));
        }
    };
    let provider = terms.provider.clone();
    meeting.start(move |messenger| {
        let ready = link.send(&LaunchNote::Ready.to_bytes());
        let ready = ready.and_then(|()| match &provider {
            Some(provider) => link.over_fabric(provider, MOVE_TO_FABRIC),
            None => Ok(link),
        });
        let mut link = match ready {
            Ok(link) => link,
            Err(error) => return messenger.send(HubSays::No(format!("the job has not begun: {error}"))),
        };
        let mut frame = Vec::new();
        let answer = link.receive(&mut frame);
        messenger.send(match (answer, LaunchNote::from_bytes(&frame)) {
            (Ok(()), Some(LaunchNote::Start)) => HubSays::Start(Box::new(link)),
            (Ok(()), _) => HubSays::No(format!("{hub} answers something else than it should")),
            (Err(error), _) => HubSays::No(format!("the job has not begun: {error}")),
        });
    })?;
    match next(&meeting)? {
        HubSays::Start(link) => Ok(Joined { hosts, terms, world, link: *link }),
        HubSays::No(why) => Err(failed(why)),
        _ => Err(failed(format!("{hub} answers something else than it should"))),
    }
}

fn next(meeting: &HostMeeting<'_, HubSays>) -> Result<HubSays, CommandFailure> {
    loop {
        match meeting.wait()? {
            MeetingNews::Left(says) => return Ok(says),
            MeetingNews::ChildEnded(pid) => _ = children::reap(pid),
        }
    }
}

/// Connects, for a while also to a hub that does not listen yet.
fn connect(hub: SocketAddr, key: &Key, mut not_yet: impl FnMut(String)) -> Result<Link, String> {
    let since = Instant::now();
    let mut told = false;
    loop {
        match Link::connect(hub, key, PURPOSE, ATTEMPT) {
            Ok(link) => return Ok(link),
            Err(error) if error.is_unreachable() && since.elapsed() < PATIENCE => {
                if !std::mem::replace(&mut told, true) {
                    not_yet(error.to_string());
                }
                std::thread::sleep(PAUSE);
            }
            Err(error) => return Err(error.to_string()),
        }
    }
}

/// Makes this host's part of the world.
fn take_part(
    arguments: &Arguments,
    terms: &JobTerms,
    place: usize,
    ranks: u32,
) -> Result<(Hosts, World), String> {
    let hosts = Hosts::new(&terms.ranks, place).map_err(|error| error.to_string())?;
    let config = WorldConfig::from_params(&terms.params).map_err(|error| error.to_string())?;
    let fits = place > 0
        && hosts.ranks(place).len() == ranks as usize
        && config.processes == hosts.size()
        && terms.names.len() == hosts.count();
    if !fits {
        return Err("the hub's terms make no sense".into());
    }
    let world = make_world(arguments, &config, hosts.ranks(place))?;
    Ok((hosts, world))
}
