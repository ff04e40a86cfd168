//! Several hosts whose links go over libfabric, by its provider `tcp`.
//!
//! Skipped where there is no libfabric: scripts/install-peers.sh brings one.

use super::{Cluster, cut_link, example, finish, kill_while_they_talk};
use crate::launching::common::member;
use crate::launching::lines;

/// Returns whether links can go over libfabric here.
fn is_there(cluster: &Cluster) -> bool {
    let hosts = cluster.start_by_shell("localhost:1,alpha:1", &["--transport", "fabric"], &["true"]);
    let (status, _, errors) = hosts.finish();
    let missing = ["is not installed here", "this build has no client of it"];
    if missing.iter().any(|text| errors.contains(text)) {
        assert_eq!(status.code(), Some(125), "{errors}");
        eprintln!("SKIPPED: {errors}");
        return false;
    }
    assert_eq!((status.code(), errors.as_str()), (Some(0), "to alpha\n"));
    true
}

#[test]
fn fabric_carries_all_forms_between_three_hosts() {
    let cluster = Cluster::new("fabric_carries_all_forms_between_three_hosts");
    if !is_there(&cluster) {
        return;
    }
    let options = ["--label", "--transport", "fabric:tcp"];
    let (codes, output, errors) = finish(cluster.start(&["2", "1", "1"], &options, &[&example("all_forms")]));
    assert!(codes.iter().all(|code| *code == Some(0)), "{codes:?} {errors}");
    for (line, rank) in lines(&output).into_iter().zip(0..4) {
        let begin = format!("[{rank}] rank {rank}: 60 messages from the rank before, 60 answers");
        assert!(line.starts_with(&begin) && line.ends_with(", 4 came back"), "{output}");
    }
    assert_eq!((lines(&output).len(), errors.as_str()), (4, ""));
    cluster.assert_clean();
}

#[test]
fn fabric_deaths_count_as_on_one_host() {
    let cluster = Cluster::new("fabric_deaths_count_as_on_one_host");
    if !is_there(&cluster) {
        return;
    }
    let member = member().to_str().unwrap();
    let options = ["--on-death", "report", "--transport", "fabric"];
    let launchers = cluster.start(&["1", "2", "1"], &options, &[member, "crash", "2", "kill"]);
    let (codes, output, errors) = finish(launchers);
    assert_eq!(lines(&output), ["rank 0 lost 2", "rank 1 lost 2", "rank 3 lost 2"], "{errors}");
    assert_eq!(codes, [Some(128 + libc::SIGKILL); 3], "{errors}");
    // A rank, a joiner's gateway, its launcher: not the hub.
    kill_while_they_talk(4, 8, "fabric");
    cluster.assert_clean();
}

#[test]
#[ignore = "a minute or two: the long form"]
fn hundred_random_kills_over_fabric() {
    let rounds = std::env::var("ROUNDS").map_or(100, |text| text.parse().unwrap());
    if is_there(&Cluster::new("hundred_random_kills_over_fabric")) {
        kill_while_they_talk(rounds, 3000, "fabric");
    }
}

#[test]
fn fabric_link_that_is_cut_is_the_death_of_ranks() {
    let cluster = Cluster::new("fabric_link_that_is_cut_is_the_death_of_ranks");
    if is_there(&cluster) {
        cut_link(&cluster, "fabric");
    }
}

#[test]
fn fabric_without_its_provider_ends_the_job_with_a_reason() {
    let cluster = Cluster::new("fabric_without_its_provider_ends_the_job_with_a_reason");
    if !is_there(&cluster) {
        return;
    }
    let launchers = cluster.start(&["1", "1"], &["--transport", "fabric:no-such"], &["true"]);
    let (codes, output, errors) = finish(launchers);
    assert_eq!((codes, output.as_str()), (vec![Some(125); 2], ""), "{errors}");
    assert_eq!(errors.matches("libfabric has no provider \"no-such\"").count(), 2, "{errors}");
    let alone = ["--transport", "fabric", "-n", "1", "true"];
    let (status, _, errors) = super::towpath(&cluster.dog, &cluster.directory, &alone).finish();
    assert!(status.code() == Some(125) && errors.contains("--hosts, or --listen"), "{errors}");
    cluster.assert_clean();
}
