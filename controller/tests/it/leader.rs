//! Leader election over a mocked API server, in paused time.

use crate::lease_server::{LeaseServer, PausedClock};
use k8s_openapi::api::coordination::v1::Lease;
use mcs_controller::leader::{Candidate, Claim, Settings};
use mcs_core::election::Policy;
use mcs_core::names::{ANNOTATION_LEFT, ANNOTATION_TERM};
use mcs_core::time::{Clock, Timestamp};
use mcs_runtime::shutdown::Shutdown;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch::Receiver;
use tokio::task::JoinHandle;

/// The wall clock at the start of each test, in microseconds since 1970: terms are above it.
const START: u64 = 1_700_000_000_000_000;

#[tokio::test(start_paused = true)]
async fn the_first_replica_leads_in_a_term_above_the_microseconds_since_1970_and_renews() {
    let server = LeaseServer::default();
    let mut first = Replica::start(&server, "first", 0);
    let claim = first.claim().await;
    assert_eq!(
        (claim.term(), claim.may_write(), holder(&server)),
        (START + 1, true, Some("first".to_owned()))
    );
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(claim.may_write());
    assert!((30..=32).contains(&server.writes()), "{} writes in a minute", server.writes());
}

#[tokio::test(start_paused = true)]
async fn a_stopping_leader_lets_the_next_lead_within_a_second() {
    let server = LeaseServer::default();
    let mut first = Replica::start(&server, "first", 0);
    let claim = first.claim().await;
    let mut second = Replica::start(&server, "second", 0);
    tokio::time::sleep(Duration::from_secs(5)).await;
    let stopped_at = first.clock.elapsed();
    first.shutdown.drain();
    first.task.await.unwrap();
    let next = second.claim().await;
    assert_eq!((claim.may_write(), next.term() > claim.term(), next.may_write()), (false, true, true));
    assert!(first.clock.elapsed().since(stopped_at) < Duration::from_secs(1));
}

/// O36: the standby's clock is a minute ahead of the leader's.
#[tokio::test(start_paused = true)]
async fn a_standby_with_a_wrong_clock_waits_for_the_last_change_it_saw() {
    let server = LeaseServer::default();
    let mut first = Replica::start(&server, "first", 0);
    let term = first.claim().await.term();
    let mut second = Replica::start(&server, "second", 60);
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(holder(&server), Some("first".to_owned()));

    let killed_at = second.clock.elapsed();
    first.task.abort();
    let next = second.claim().await;
    let took = second.clock.elapsed().since(killed_at);
    let policy = Policy::default();
    assert!(next.term() > term, "{} is not above {term}", next.term());
    let bounds = policy.lease_duration - policy.retry_period..policy.lease_duration + policy.retry_period;
    assert!(bounds.contains(&took), "{took:?}");
}

/// O41: one renewal hangs, the next works.
#[tokio::test(start_paused = true)]
async fn a_renewal_that_hangs_costs_nothing() {
    let server = LeaseServer::default();
    let mut first = Replica::start(&server, "first", 0);
    let claim = first.claim().await;
    server.hang_writes(1);
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(claim.may_write());
}

/// O41: all renewals hang, for a while.
#[tokio::test(start_paused = true)]
async fn a_leader_whose_renewals_hang_stops_at_its_deadline_and_leads_again_in_a_new_term() {
    let server = LeaseServer::default();
    let mut first = Replica::start(&server, "first", 0);
    let claim = first.claim().await;
    let led_until = first.clock.elapsed() + Policy::default().renew_deadline;
    server.hang_writes(usize::MAX);
    first.no_claim().await;
    let ended = first.clock.elapsed();
    assert!(!claim.may_write());
    assert!(
        ended >= Timestamp::from_millis(9_000) && ended <= led_until + Duration::from_millis(500),
        "{ended:?}"
    );

    server.hang_writes(0);
    let next = first.claim().await;
    assert_eq!((next.term() > claim.term(), next.may_write(), claim.may_write()), (true, true, false));
}

#[tokio::test(start_paused = true)]
async fn a_claim_ends_at_its_deadline_while_a_call_hangs() {
    let server = LeaseServer::default();
    let mut first = Replica::start(&server, "first", 0);
    let claim = first.claim().await;
    // The task that would publish the end does not run at all.
    first.task.abort();
    tokio::time::sleep(Duration::from_millis(9_900)).await;
    assert!(claim.may_write());
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!claim.may_write());
}

#[tokio::test(start_paused = true)]
async fn a_floor_gives_a_claim_above_it_and_ends_the_old_one() {
    let server = LeaseServer::default();
    let mut first = Replica::start(&server, "first", 0);
    let claim = first.claim().await;
    claim.raise_term(START + 9);
    let next = first.claim_of_term(START + 10).await;
    assert_eq!((next.may_write(), claim.may_write(), term(&server)), (true, false, START + 10));
}

#[tokio::test(start_paused = true)]
async fn a_leader_stops_when_another_holds_the_lease() {
    let server = LeaseServer::default();
    let mut first = Replica::start(&server, "first", 0);
    let claim = first.claim().await;
    let mut taken = server.lease();
    taken.spec.as_mut().unwrap().holder_identity = Some("intruder".to_owned());
    let taken_at = first.clock.elapsed();
    server.set(taken);
    first.no_claim().await;
    assert!(!claim.may_write());
    assert!(first.clock.elapsed().since(taken_at) < Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn a_deleted_lease_is_made_again_by_its_leader() {
    let server = LeaseServer::default();
    let mut first = Replica::start(&server, "first", 0);
    let claim = first.claim().await;
    let mut second = Replica::start(&server, "second", 0);
    tokio::time::sleep(Duration::from_secs(5)).await;
    server.delete();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(
        (claim.may_write(), holder(&server), term(&server)),
        (true, Some("first".to_owned()), START + 1)
    );
    assert!(second.claims.borrow_and_update().is_none());
}

#[tokio::test(start_paused = true)]
async fn what_others_wrote_on_the_lease_stays() {
    let server = LeaseServer::default();
    let mut lease = Lease::default();
    lease.metadata.name = Some("mcs-controller".to_owned());
    lease.metadata.labels = Some([("team".to_owned(), "net".to_owned())].into());
    lease.metadata.annotations = Some([(ANNOTATION_TERM.to_owned(), (START + 41).to_string())].into());
    server.set(lease);
    let claim = Replica::start(&server, "first", 0).claim().await;
    assert_eq!((claim.term(), server.lease().metadata.labels.unwrap()["team"].as_str()), (START + 42, "net"));
}

#[tokio::test(start_paused = true)]
async fn replicas_that_see_the_cluster_leave_retire_and_one_that_starts_afterwards_joins_again() {
    let server = LeaseServer::default();
    let mut leader = Replica::start(&server, "leader", 0);
    let claim = leader.claim().await;
    let mut standby = Replica::start(&server, "standby", 0);
    tokio::time::sleep(Duration::from_secs(5)).await;

    let mut left = server.lease();
    left.metadata.annotations.get_or_insert_default().insert(ANNOTATION_LEFT.to_owned(), "once".to_owned());
    left.spec.get_or_insert_default().holder_identity = None;
    server.set(left);
    leader.no_claim().await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!((claim.may_write(), holder(&server)), (false, None));
    standby.no_claim().await;

    let mut fresh = Replica::start(&server, "fresh", 0);
    let next = fresh.claim().await;
    assert!(next.term() > claim.term());
    assert!(!server.lease().metadata.annotations.unwrap().contains_key(ANNOTATION_LEFT));
    for retired in [leader, standby] {
        retired.shutdown.drain();
        retired.task.await.unwrap();
    }
    assert_eq!(holder(&server), Some("fresh".to_owned()));
}

struct Replica {
    clock: Arc<PausedClock>,
    shutdown: Shutdown,
    claims: Receiver<Option<Claim>>,
    task: JoinHandle<()>,
}

impl Replica {
    fn start(server: &LeaseServer, identity: &str, wall_off: i64) -> Self {
        let settings = Settings {
            namespace: "system".to_owned(),
            name: "mcs-controller".to_owned(),
            identity: identity.to_owned(),
            policy: Policy::default(),
        };
        let (clock, shutdown) = (PausedClock::start(wall_off), Shutdown::manual());
        let shared = Arc::<PausedClock>::clone(&clock);
        let (candidate, claims) = Candidate::new(server.client(), settings, shared, shutdown.watch());
        Self { clock, shutdown, claims, task: tokio::spawn(candidate.run()) }
    }

    async fn claim(&mut self) -> Claim {
        self.until(Option::is_some).await.unwrap()
    }

    async fn claim_of_term(&mut self, term: u64) -> Claim {
        self.until(|claim| claim.as_ref().is_some_and(|claim| claim.term() == term)).await.unwrap()
    }

    async fn no_claim(&mut self) {
        self.until(Option::is_none).await;
    }

    async fn until(&mut self, wanted: impl FnMut(&Option<Claim>) -> bool) -> Option<Claim> {
        let found = tokio::time::timeout(Duration::from_secs(60), self.claims.wait_for(wanted));
        found.await.unwrap().unwrap().clone()
    }
}

fn holder(server: &LeaseServer) -> Option<String> {
    server.lease().spec?.holder_identity
}

fn term(server: &LeaseServer) -> u64 {
    server.lease().metadata.annotations.unwrap()[ANNOTATION_TERM].parse().unwrap()
}
