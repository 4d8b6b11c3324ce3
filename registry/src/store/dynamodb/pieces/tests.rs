use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use mcs_core::limits::MAX_ENDPOINTS;
use mcs_core::model::{Endpoint, EndpointPort, GroupKey, IpFamily, Protocol};

use super::*;

fn port(name: &str, number: u16) -> EndpointPort {
    EndpointPort { name: name.to_owned(), port: Some(number), ..EndpointPort::default() }
}

fn pod(number: u32) -> (IpAddr, Endpoint) {
    let endpoint = Endpoint {
        ready: Some(true),
        serving: Some(true),
        terminating: Some(false),
        hostname: None,
        zone: Some("us-east-1a".to_owned()),
        node_name: Some(format!("ip-10-0-{:03}.ec2.internal", number % 200)),
    };
    (IpAddr::V4(Ipv4Addr::from(0x0a00_0000 + number)), endpoint)
}

fn set(groups: &[(u16, &[(IpAddr, Endpoint)])]) -> EndpointSet {
    let mut map = EndpointMap::default();
    for (number, members) in groups {
        map.insert_all(GroupKey::new(IpFamily::V4, [port("http", *number)]), members.iter().cloned());
    }
    map.pack()
}

fn pods(numbers: impl IntoIterator<Item = u32>) -> Vec<(IpAddr, Endpoint)> {
    numbers.into_iter().map(pod).collect()
}

fn digests(set: &EndpointSet) -> BTreeSet<Digest> {
    cut(set).iter().map(|piece| Digest::of(piece)).collect()
}

fn joined(pieces: &[Vec<u8>]) -> Result<EndpointSet, Unreadable> {
    join(pieces.iter().map(Vec::as_slice))
}

#[test]
fn pieces_give_the_set_that_they_were_cut_from() {
    let v6 = GroupKey::new(IpFamily::V6, [port("grpc", 9090), port("", 80)]);
    let mut both = EndpointMap::default();
    both.insert_all(GroupKey::new(IpFamily::V4, [port("http", 8080)]), pods(0..900));
    for number in 0..900_u16 {
        let bare = Endpoint { hostname: Some(format!("db-{number}")), ..Endpoint::default() };
        both.insert(v6.clone(), format!("2001:db8::{number:x}").parse().unwrap(), bare);
    }
    let sets = [
        EndpointSet::default(),
        set(&[(80, &pods([7]))]),
        set(&[(80, &pods(0..2_500)), (81, &pods(2_000..3_000))]),
        both.pack(),
    ];
    for set in sets {
        let pieces = cut(&set);
        assert_eq!(joined(&pieces), Ok(set.clone()));
        // Those of few endpoints lie in one place.
        assert_eq!(join([pieces.concat().as_slice()]), Ok(set));
    }
}

#[test]
fn a_piece_is_between_its_bounds() {
    let pieces = cut(&set(&[(80, &pods(0..20_000))]));
    let (last, others) = pieces.split_last().unwrap();
    let sizes = |pieces: &[Vec<u8>]| (pieces.iter().map(Vec::len).min(), pieces.iter().map(Vec::len).max());
    let (least, most) = sizes(others);
    // What is counted beside the endpoints is a few bytes too much.
    assert!(
        least.unwrap() > LEAST - 500 && most.unwrap() <= MOST && last.len() <= MOST,
        "{:?}",
        sizes(others)
    );
    let mean = others.iter().map(Vec::len).sum::<usize>() / others.len();
    assert!((6_000..10_000).contains(&mean), "{mean}");
}

/// A change costs what it changes, wherever it is.
#[test]
fn one_endpoint_more_or_less_changes_two_pieces_at_most() {
    let all = set(&[(80, &pods(0..5_000))]);
    let before = digests(&all);
    for at in [0, 1, 63, 2_500, 4_999] {
        let less = digests(&set(&[(80, &pods((0..5_000).filter(|number| *number != at)))]));
        let mut other = pods(0..5_000);
        other[at as usize].1.ready = Some(false);
        let unready = digests(&set(&[(80, &other)]));
        for after in [less, unready] {
            assert!(after.difference(&before).count() <= 2, "{at}");
            assert!(before.difference(&after).count() <= 2, "{at}");
            assert_ne!(after, before, "{at}");
        }
    }
}

#[test]
fn groups_with_the_same_endpoints_share_pieces() {
    let members = pods(0..2_000);
    let set = set(&[(80, &members), (81, &members)]);
    let pieces = cut(&set);
    assert!(digests(&set).len() < pieces.len());
    assert_eq!(joined(&pieces), Ok(set));
}

/// The largest ports that there may be do not fit into a piece, and must not be in each of them.
#[test]
fn ports_that_are_larger_than_a_piece_are_named_once() {
    let protocol = format!("{}/{}", "a".repeat(253), "b".repeat(63));
    let ports = (0..100_u16).map(|number| EndpointPort {
        name: format!("{number:063}"),
        protocol: Protocol::Tcp,
        port: Some(number + 1),
        app_protocol: Some(protocol.clone()),
    });
    let mut map = EndpointMap::default();
    map.insert_all(GroupKey::new(IpFamily::V4, ports), pods(0..2_000));
    let set = map.pack();
    let pieces = cut(&set);
    let (first, others) = pieces.split_first().unwrap();
    assert!(first.len() > MOST && first.len() < 2 * MOST, "{}", first.len());
    assert!(others.iter().all(|piece| piece.len() <= MOST));
    assert_eq!(joined(&pieces), Ok(set));
}

/// Fault 18: the list of the pieces of the largest set lies in one item, whoever picked the addresses.
#[test]
fn the_largest_set_has_pieces_that_one_item_can_name() {
    let endpoint = Endpoint {
        ready: Some(true),
        serving: Some(true),
        terminating: Some(false),
        hostname: Some("h".repeat(63)),
        zone: Some("z".repeat(63)),
        node_name: Some("n".repeat(253)),
    };
    let ending = (0_u32..).map(Ipv4Addr::from).map(IpAddr::V4).filter(|address| ends_before(*address));
    let mut map = EndpointMap::default();
    let group = GroupKey::new(IpFamily::V4, [port("http", 80)]);
    map.insert_all(group, ending.take(MAX_ENDPOINTS).map(|address| (address, endpoint.clone())));
    let set = map.pack();
    let pieces = cut(&set);
    assert_eq!(set.len(), MAX_ENDPOINTS);
    assert!(pieces.len() < 5_500, "{}", pieces.len());
    assert_eq!(pieces.iter().map(Vec::len).max().map(|most| most <= MOST), Some(true));
    assert_eq!(joined(&pieces), Ok(set));
}

#[test]
fn what_is_no_set_is_not_read_as_one() {
    let pieces = cut(&set(&[(80, &pods(0..2_000))]));
    let headless = joined(&pieces[1..]);
    assert_eq!(headless, Err(Unreadable::Headless));
    assert!(matches!(join([&b"\xff"[..]]), Err(Unreadable::Body(_))));

    let group = |family: i32, address: &str| pb::EndpointGroup {
        family,
        endpoints: vec![pb::Endpoint { address: address.to_owned(), ..Default::default() }],
        ..Default::default()
    };
    let piece = |group| pb::EndpointSet { groups: vec![group], more: false }.encode_to_vec();
    let v4 = pb::IpFamily::Ipv4 as i32;
    assert_eq!(joined(&[piece(group(v4, "10.0.0.x"))]), Err(Unreadable::Endpoint));
    // A family of a later release.
    assert!(matches!(joined(&[piece(group(7, "10.0.0.1"))]), Err(Unreadable::Field(_))));
}
