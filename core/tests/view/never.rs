//! Over random frames: no decision takes away what no rule lets go, and versions shown never fall.

use super::feed::{Feed, active, expired, id, key, state, syncing};
use mcs_core::model::MemberState;
use mcs_core::version::Version;
use mcs_core::view::{Decision, Source};
use proptest::prelude::*;
use std::time::Duration;

/// One event of a stream that may come from any registry, in any state of knowledge about `alpha`.
#[derive(Clone, Debug)]
enum Event {
    Begin(u128),
    End(bool),
    Progress(bool),
    Disconnected,
    Own(bool),
    Syncing,
    NotWhole(u64),
    Lagging(u64),
    Part(u64),
    PartGone,
    Header(u64),
    HeaderGone,
    Wait(u64),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        (1u128..5).prop_map(Event::Begin),
        any::<bool>().prop_map(Event::End),
        any::<bool>().prop_map(Event::Progress),
        Just(Event::Disconnected),
        any::<bool>().prop_map(Event::Own),
        Just(Event::Syncing),
        (0u64..20).prop_map(Event::NotWhole),
        (0u64..5).prop_map(Event::Lagging),
        (1u64..20).prop_map(Event::Part),
        Just(Event::PartGone),
        (1u64..20).prop_map(Event::Header),
        Just(Event::HeaderGone),
        (0u64..20).prop_map(Event::Wait),
    ]
}

fn feed_event(feed: &mut Feed, event: &Event) {
    match event {
        Event::Begin(epoch) => feed.begin(*epoch),
        Event::End(complete) => feed.end(*complete),
        Event::Progress(complete) => feed.progress(*complete),
        Event::Disconnected => feed.view.disconnected(),
        Event::Own(true) => feed.section("gamma", active(1)),
        Event::Own(false) => feed.section("gamma", expired(1)),
        Event::Syncing => feed.section("alpha", syncing()),
        Event::NotWhole(seq) => feed.section("alpha", state(MemberState::Active, false, *seq)),
        Event::Lagging(seq) => feed.section("alpha", active(*seq)),
        Event::Part(seq) => feed.part("alpha", *seq, &[u8::try_from(*seq).unwrap_or(0)]),
        Event::PartGone => feed.part_gone("alpha"),
        Event::Header(seq) => feed.header(&[("alpha", *seq)]),
        Event::HeaderGone => feed.header_gone(),
        Event::Wait(secs) => feed.wait(Duration::from_secs(*secs)),
    }
}

/// Whether `alpha`'s slices stay by `decision`, and the version that they get.
fn stays(decision: &Decision) -> (bool, Option<Version>) {
    match decision {
        Decision::Keep => (true, None),
        Decision::Remove => (false, None),
        Decision::Apply(wanted) => match wanted.sources.get(&id("alpha")) {
            Some(Source::Show(shown)) => (true, shown.version),
            Some(Source::Keep) => (true, None),
            None => (false, None),
        },
    }
}

proptest! {
    /// No event of these says that alpha is gone: it is listed not whole, or behind what is applied, or syncing, or not
    /// at all for less than the grace.
    #[test]
    fn what_no_rule_lets_go_stays(events in proptest::collection::vec(event(), 0..40)) {
        let mut feed = Feed::with_alpha();
        feed.part("alpha", 25, &[25]);
        feed.apply();
        let mut unlisted = Duration::ZERO;
        for event in &events {
            if let Event::Wait(secs) = event {
                unlisted += Duration::from_secs(*secs);
            } else if matches!(event, Event::Begin(_) | Event::Disconnected | Event::Progress(false)) {
                unlisted = Duration::ZERO;
            }
            if unlisted >= super::GRACE {
                break;
            }
            feed_event(&mut feed, event);
            let decision = feed.decide();
            prop_assert!(stays(&decision).0, "{event:?} led to {decision:?}");
            feed.apply();
        }
    }

    /// Also where registries disagree: within one snapshot and what follows it versions rise, as a registry promises.
    #[test]
    fn versions_shown_never_fall(
        events in proptest::collection::vec(prop_oneof![3 => event(), 1 => (5u64..20).prop_map(Event::Lagging)], 0..40),
    ) {
        let mut feed = Feed::with_alpha();
        let mut highest = Version::new(1, 5);
        let (mut section, mut part) = (5, 5);
        for event in &events {
            match event {
                Event::Begin(_) => (section, part) = (0, 0),
                Event::NotWhole(seq) | Event::Lagging(seq) if *seq >= section => section = *seq,
                Event::Part(seq) if *seq >= part => part = *seq,
                Event::NotWhole(_) | Event::Lagging(_) | Event::Part(_) => continue,
                _ => {}
            }
            feed_event(&mut feed, event);
            if let (_, Some(version)) = stays(&feed.decide()) {
                prop_assert!(version >= highest, "{event:?} shows {version} after {highest}");
                highest = version;
            }
            if feed.decide() != Decision::Remove {
                feed.apply();
            }
        }
        prop_assert_eq!(feed.view.decide(&key()), feed.decide(), "a decision depends on what was told alone");
    }
}
