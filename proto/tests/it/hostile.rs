//! Bytes from outside, whatever they are: what must hold of them, looked at over mutations of valid messages.
//!
//! The same properties are fuzz targets (`make fuzz`, see docs/testing.md), which need a nightly compiler and time;
//! here a fixed sequence of mutations holds them with every build.

pub mod answers;
pub mod json;
pub mod members;
pub mod mutate;
pub mod seeds;
pub mod texts;
pub mod url;
pub mod watch;

use mcs_core::model::EndpointMap;
use mcs_core::validate::check_endpoints;
use mcs_proto::chunks::MAX_DROPPED;
use mcs_proto::convert::read_endpoints;
use mcs_proto::pb;
use mutate::{Random, mutate};
use std::net::Ipv4Addr;
use std::path::Path;
use texts::{TEXTS, lengths};

/// How many mutations of each seed are tried; each begins where the one before ended, and anew after a few.
const MUTATIONS: u64 = 1_000;

fn over_mutations(target: &str, play: fn(&[u8])) {
    let seeds: Vec<_> = seeds::all().into_iter().filter(|(of, ..)| *of == target).collect();
    assert!(!seeds.is_empty(), "{target} has seeds");
    for (_, name, seed) in seeds {
        play(&seed);
        let mut random = Random::new(name.len() as u64);
        let mut bytes = seed.clone();
        for step in 0..MUTATIONS {
            if step % 6 == 0 || bytes.len() > 32 * 1024 {
                bytes.clone_from(&seed);
            }
            bytes = mutate(&bytes, &mut random);
            play(&bytes);
        }
    }
}

/// Those of the targets of this crate; with `UPDATE_SEEDS=1` they are written.
#[test]
fn the_seeds_of_the_fuzz_targets_are_up_to_date() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/seeds");
    for (target, name, seed) in seeds::all() {
        let file = folder.join(target).join(name);
        if std::env::var_os("UPDATE_SEEDS").is_some() {
            std::fs::create_dir_all(folder.join(target)).unwrap();
            std::fs::write(&file, &seed).unwrap();
        }
        let kept = std::fs::read(&file).unwrap_or_default();
        // The metadata of a status has no order of its own.
        let sorted = |mut bytes: Vec<u8>| {
            bytes.sort_unstable();
            bytes
        };
        assert!(
            sorted(kept) == sorted(seed),
            "{} is not what is here; UPDATE_SEEDS=1 writes it",
            file.display()
        );
    }
}

#[test]
fn whatever_a_member_sends_the_registry_holds_what_is_valid() {
    over_mutations("registry_messages", members::play);
}

/// Each endpoint once looked its group up by all ports that the group says it has: this took minutes for half a
/// megabyte, and hours for a whole message.
#[test]
fn what_a_group_of_many_ports_costs_is_paid_once_and_not_for_each_endpoint() {
    const COUNT: u32 = 20_000;
    let port = |number| pb::EndpointPort { port: Some(number), ..Default::default() };
    let endpoint = |number| pb::Endpoint {
        address: Ipv4Addr::from(0x0a00_0000 + number).to_string(),
        ..Default::default()
    };
    let group = pb::EndpointGroup {
        family: pb::IpFamily::Ipv4.into(),
        ports: (1..=COUNT).map(port).collect(),
        endpoints: (0..COUNT).map(endpoint).collect(),
    };
    let (mut read, mut dropped) = (EndpointMap::default(), Vec::new());
    let set = pb::EndpointSet { groups: vec![group], more: false };
    read_endpoints(set, &mut read, &mut dropped).unwrap();
    let (kept, refused) = check_endpoints(&read.pack());
    assert_eq!((kept.len(), refused.len(), dropped.len()), (0, 20_000, 0));
    assert_eq!(
        (refused[0].field.as_str(), refused[0].problem.as_str()),
        ("ports", "must be at most 100, and are 20000")
    );
}

#[test]
fn a_million_unreadable_endpoints_are_named_a_hundred_times() {
    let group = pb::EndpointGroup {
        family: pb::IpFamily::Ipv4.into(),
        ports: Vec::new(),
        endpoints: vec![pb::Endpoint::default(); 1_000_000],
    };
    let (mut read, mut dropped) = (EndpointMap::default(), Vec::new());
    let set = pb::EndpointSet { groups: vec![group], more: false };
    read_endpoints(set, &mut read, &mut dropped).unwrap();
    assert_eq!((read.len(), dropped.len()), (0, MAX_DROPPED));
}

#[test]
fn whatever_a_registry_tells_nothing_goes_without_cause() {
    over_mutations("watch_frames", watch::play);
}

#[test]
fn whatever_a_registry_answers_the_outbox_goes_on() {
    over_mutations("answers", answers::play);
}

/// The rules of JSON are texts, so a text is what is put in: in each place between two quotes, and in each value.
#[test]
fn whatever_json_is_read_is_written_so_that_it_reads_back() {
    for (_, _, seed) in seeds::all().into_iter().filter(|(of, ..)| *of == "json") {
        json::play(&seed);
        let (kind, text) = (seed[0], String::from_utf8(seed[1..].to_vec()).unwrap());
        let quotes: Vec<usize> = text.match_indices('"').map(|(place, _)| place).collect();
        for places in quotes.windows(2) {
            let (before, after) = (&text[..=places[0]], &text[places[1]..]);
            // Each place gets a few of them, and all are put in somewhere.
            for put in TEXTS.iter().cycle().skip(places[0]).take(6) {
                let escaped = serde_json::to_string(put).unwrap();
                let escaped = &escaped[1..escaped.len() - 1];
                json::play(&[&[kind], format!("{before}{escaped}{after}").as_bytes()].concat());
                json::play(&[&[kind], format!("{before}{put}{after}").as_bytes()].concat());
            }
        }
        for (place, _) in text.match_indices(':') {
            for value in ["null", "-1", "1e400", "18446744073709551616", "[]", "{}", "[[]]", "true", "\"\""] {
                let end = text[place..].find([',', '}', ']']).unwrap() + place;
                json::play(
                    &[&[kind], format!("{}:{value}{}", &text[..place], &text[end..]).as_bytes()].concat(),
                );
            }
        }
    }
}

#[test]
fn a_url_or_a_name_that_is_read_is_what_was_written() {
    let seeds = seeds::all().into_iter().filter(|(of, ..)| *of == "urls_and_flags");
    for (_, _, seed) in seeds {
        let seed = String::from_utf8(seed).unwrap();
        url::play(&seed);
        for text in TEXTS.iter().map(|text| (*text).to_owned()).chain(lengths()) {
            url::play(&text);
            for place in (0..=seed.len()).filter(|place| seed.is_char_boundary(*place)) {
                let (before, after) = seed.split_at(place);
                url::play(&format!("{before}{text}{after}"));
                url::play(&format!("{before}{text}"));
            }
        }
    }
}
