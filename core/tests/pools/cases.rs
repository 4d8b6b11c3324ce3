//! Failures that users of such systems have reported, at the slices of pools and of the router.

use super::build::*;
use mcs_core::pools::index::{Index, IndexChange, SliceEvent};
use mcs_core::pools::slices::{SliceEndpoint, SliceFacts};
use mcs_core::pools::{Notice, PoolKey};
use std::collections::BTreeSet;
use std::sync::Arc;

fn listed() -> Index {
    let mut index = Index::new(services());
    index.handle_event(SliceEvent::Init);
    index.handle_event(SliceEvent::InitDone);
    drain(&mut index);
    index
}

fn drain(index: &mut Index) -> Vec<IndexChange> {
    std::iter::from_fn(|| index.next_change()).collect()
}

fn relays(addresses: &[&str]) -> SliceFacts {
    of("chat-pool-relay", "alpha", addresses.iter().map(|address| ready(address)).collect())
}

fn live(identities: &[&str], frontends: &[&str]) -> IndexChange {
    IndexChange::Live(key("alpha", "chat"), Arc::new(facts(identities, frontends)))
}

fn is_of_pools(change: &IndexChange) -> bool {
    !matches!(change, IndexChange::Notice(_))
}

/// Case O01: one slice of several goes, and the others count as before; nothing empty is told in between.
#[test]
fn a_slice_of_several_that_goes_takes_its_own_endpoints_alone() {
    let mut index = listed();
    index.handle_event(apply("a", relays(&["10.0.0.1", "10.0.0.2"])));
    index.handle_event(apply("b", relays(&["10.0.0.3"])));
    drain(&mut index);
    index.handle_event(delete("b"));
    assert_eq!(drain(&mut index), [live(&["ip:10.0.0.1", "ip:10.0.0.2"], &[])]);
    index.handle_event(delete("a"));
    assert_eq!(drain(&mut index), [IndexChange::Gone(key("alpha", "chat"))]);
}

/// Case O02: what a slice says replaces what it said.
#[test]
fn a_changed_slice_is_a_replacement_never_a_union() {
    let mut index = listed();
    index.handle_event(apply("a", relays(&["10.0.0.1", "10.0.0.2", "10.0.0.3"])));
    drain(&mut index);
    index.handle_event(apply("a", relays(&["10.0.0.2", "10.0.0.9"])));
    assert_eq!(drain(&mut index), [live(&["ip:10.0.0.2", "ip:10.0.0.9"], &[])]);
}

/// Case O03: what says the same in another order is told to nobody.
#[test]
fn the_order_of_endpoints_and_ports_is_no_change() {
    let mut index = listed();
    let mut frontend = frontend("alpha", "10.0.0.9");
    frontend.ports.push(port("metrics", 9000));
    index.handle_event(apply("f", frontend.clone()));
    index.handle_event(apply("r", relays(&["10.0.0.1", "10.0.0.2"])));
    drain(&mut index);
    frontend.ports.reverse();
    index.handle_event(apply("f", frontend));
    index.handle_event(apply("r", relays(&["10.0.0.2", "10.0.0.1"])));
    assert_eq!(drain(&mut index), []);
}

/// Case O10: the port is the slice's, which is where the pod listens, never the Service's.
#[test]
fn a_frontend_is_reached_at_the_port_of_its_slice() {
    let mut index = listed();
    index.handle_event(apply("f", frontend("alpha", "10.0.0.9")));
    index.handle_event(apply("r", relays(&["10.0.0.1"])));
    let seen: Vec<_> = drain(&mut index).into_iter().filter(is_of_pools).collect();
    assert_eq!(seen, [live(&["ip:10.0.0.1"], &["http://10.0.0.9:8000/"])]);
}

/// Case O12: a Service without ports gives no frontend, no port 0, and one line.
#[test]
fn a_frontend_slice_without_ports_gives_nothing_but_a_notice() {
    let mut index = listed();
    index.handle_event(apply("r", relays(&["10.0.0.1"])));
    drain(&mut index);
    let headless = SliceFacts { ports: vec![], ..frontend("alpha", "10.0.0.9") };
    index.handle_event(apply("f", headless.clone()));
    index.handle_event(apply("f", SliceFacts { endpoints: vec![ready("10.0.0.8")], ..headless }));
    let notice =
        Notice::NoPort { slice: slice("ml", "f"), service: "chat-frontend".into(), port: "http".into() };
    assert_eq!(drain(&mut index), [IndexChange::Notice(notice)]);
}

/// Case O15: who is published although it is not ready counts by the condition `ready` as it is.
#[test]
fn only_ready_endpoints_are_listed_whatever_else_they_are() {
    let mut index = listed();
    let endpoints = vec![ready("10.0.0.1"), not_ready("10.0.0.2")];
    index.handle_event(apply("r", of("chat-pool-relay", "alpha", endpoints)));
    let seen: Vec<_> = drain(&mut index).into_iter().filter(is_of_pools).collect();
    assert_eq!(seen, [live(&["ip:10.0.0.1"], &[])]);
}

/// Case O16: the slices of both families, whichever comes last, give one pod at its IPv4 address.
#[test]
fn slices_of_both_families_do_not_replace_each_other() {
    let (v4, v6) = (frontend("alpha", "10.0.0.1"), frontend("alpha", "fd00::1"));
    let mut index = listed();
    index.handle_event(apply("r", relays(&["10.0.0.7"])));
    index.handle_event(apply("v6", v6.clone()));
    drain(&mut index);
    let events = [
        apply("v4", v4.clone()),
        apply("v6", v6.clone()),
        apply("v4", v4),
        delete("v6"),
        apply("v6", v6),
        delete("v4"),
    ];
    for event in events {
        index.handle_event(event);
    }
    let relay = &["ip:10.0.0.7"];
    let expected = [live(relay, &["http://10.0.0.1:8000/"]), live(relay, &["http://[fd00::1]:8000/"])];
    assert_eq!(drain(&mut index), expected);
}

/// Case O18: as many endpoints as there are, however many slices they are in.
#[test]
fn thousands_of_endpoints_over_many_slices_are_all_listed() {
    for count in [99, 100, 101, 1000, 1001, 2500_u32] {
        let mut index = listed();
        let addresses: Vec<String> =
            (0..count).map(|number| std::net::Ipv4Addr::from(0x0a00_0000 + number).to_string()).collect();
        for (number, chunk) in addresses.chunks(100).enumerate() {
            let chunk: Vec<&str> = chunk.iter().map(String::as_str).collect();
            index.handle_event(apply(&format!("r{number}"), relays(&chunk)));
        }
        let facts = index.pools().get(&key("alpha", "chat")).unwrap();
        let listed: BTreeSet<&str> =
            facts.relay_identities.iter().map(|identity| &identity["ip:".len()..]).collect();
        assert_eq!(listed, addresses.iter().map(String::as_str).collect(), "{count}");
    }
}

/// Case O27: names as long as Kubernetes takes them.
#[test]
fn a_pool_whose_names_are_as_long_as_they_may_be_is_found() {
    let (longest, dgd) = ("a".repeat(63), "d".repeat(63 - "-pool-relay".len()));
    let mut index = listed();
    let facts = SliceFacts { service: format!("{dgd}-pool-relay").into(), ..relay(&longest, "10.0.0.1") };
    index.handle_event(SliceEvent::Apply(slice(&longest, "r"), facts));
    let keys: Vec<PoolKey> = index.pools().keys().cloned().collect();
    assert_eq!(keys, [PoolKey::new(&longest, &longest, &dgd).unwrap()]);
}

/// Case O28: slices of one name in two namespaces are two.
#[test]
fn slices_of_one_name_in_two_namespaces_do_not_meet() {
    let mut index = listed();
    let put = |namespace, address| SliceEvent::Apply(slice(namespace, "cart-x"), relay("alpha", address));
    index.handle_event(put("a", "10.0.0.1"));
    index.handle_event(put("b", "10.0.0.2"));
    index.handle_event(SliceEvent::Delete(slice("a", "cart-x")));
    let left: Vec<_> =
        index.pools().iter().map(|(key, facts)| (key.to_string(), (**facts).clone())).collect();
    assert_eq!(left, [("alpha/b/chat".to_owned(), facts(&["ip:10.0.0.2"], &[]))]);
}

/// The text of an identity, and of a URL, is the same on every instance: that of RFC 5952.
#[test]
fn ipv6_addresses_are_written_as_rfc_5952_says() {
    let cases = [
        ("2001:0db8::0001", "2001:db8::1"),
        ("2001:db8:0:0:0:0:2:1", "2001:db8::2:1"),
        ("2001:db8:0:1:1:1:1:1", "2001:db8:0:1:1:1:1:1"),
        ("2001:0:0:1:0:0:0:1", "2001:0:0:1::1"),
        ("2001:db8:0:0:1:0:0:1", "2001:db8::1:0:0:1"),
        ("2001:DB8::ABCD", "2001:db8::abcd"),
        ("::ffff:10.43.1.2", "10.43.1.2"),
        ("::ffff:0a2b:0102", "10.43.1.2"),
    ];
    for (written, expected) in cases {
        let mut index = listed();
        index.handle_event(apply("r", relays(&[written])));
        let facts = &index.pools()[&key("alpha", "chat")];
        let expected: [Box<str>; 1] = [format!("ip:{expected}").into()];
        assert_eq!(*facts.relay_identities, expected, "{written}");
    }
}

/// An endpoint may have several addresses: they are of one pod.
#[test]
fn a_nameless_endpoint_with_two_addresses_is_one_frontend() {
    let mut index = listed();
    let mut both = frontend("alpha", "10.0.0.9");
    both.endpoints = vec![SliceEndpoint {
        addresses: ["10.0.0.9", "10.0.0.8"].map(|address| address.parse().unwrap()).into(),
        ..ready("10.0.0.9")
    }];
    index.handle_event(apply("f", both));
    index.handle_event(apply("r", relays(&["10.0.0.1"])));
    let seen: Vec<_> = drain(&mut index).into_iter().filter(is_of_pools).collect();
    assert_eq!(seen, [live(&["ip:10.0.0.1"], &["http://10.0.0.8:8000/"])]);
}
