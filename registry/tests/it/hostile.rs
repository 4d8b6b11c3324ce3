//! Hostile input: requests from outside, whatever they are, over a fixed sequence of mutations.

pub mod calls;
pub mod certificates;
#[path = "../../../proto/tests/it/hostile/mutate.rs"]
pub mod mutate;
#[path = "../../../proto/tests/it/hostile/texts.rs"]
pub mod texts;

mod fields;
mod seeds;

use std::path::Path;

use mcs_runtime::tls::Certificate;
use mutate::{Random, mutate};
use prost::Message;
use texts::TEXTS;

/// How many mutations of each seed are tried.
const MUTATIONS: u64 = 400;

/// With `UPDATE_SEEDS=1` they are written.
#[test]
fn the_seeds_of_the_fuzz_targets_are_up_to_date() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/seeds");
    let rest = seeds::rest().into_iter().map(|(name, text)| ("rest_calls", name, text.into_bytes()));
    let grpc = seeds::grpc().into_iter().map(|(name, script)| ("grpc_calls", name, script.encode_to_vec()));
    for (target, name, seed) in rest.chain(grpc) {
        let file = folder.join(target).join(name);
        if std::env::var_os("UPDATE_SEEDS").is_some() {
            std::fs::create_dir_all(folder.join(target)).unwrap();
            std::fs::write(&file, &seed).unwrap();
        }
        let kept = std::fs::read(&file).unwrap_or_default();
        assert!(kept == seed, "{} is not what is here; UPDATE_SEEDS=1 writes it", file.display());
    }
}

#[test]
fn whatever_is_called_over_grpc_is_answered_and_leaves_what_is_valid() {
    for (name, script) in seeds::grpc() {
        let seed = script.encode_to_vec();
        calls::play_grpc(&seed);
        let mut random = Random::new(name.len() as u64);
        let mut bytes = seed.clone();
        for step in 0..MUTATIONS {
            if step % 5 == 0 || bytes.len() > 16 * 1024 {
                bytes.clone_from(&seed);
            }
            bytes = mutate(&bytes, &mut random);
            calls::play_grpc(&bytes);
        }
    }
}

#[test]
fn whatever_is_requested_over_rest_is_answered_and_leaves_what_is_valid() {
    for (_, seed) in seeds::rest() {
        calls::play_rest(seed.as_bytes());
        // Between two characters that separate, a text is what is put in; each place gets another one.
        let places: Vec<usize> = seed
            .match_indices(['/', '?', '=', '&', '"', ':', ' ', '{'])
            .map(|(place, _)| place + 1)
            .collect();
        for (number, place) in places.iter().enumerate() {
            let end = seed[*place..]
                .find(['/', '?', '=', '&', '"', ':', ' ', '}', ',', '\n'])
                .map_or(seed.len(), |end| place + end);
            let text = TEXTS[number % TEXTS.len()];
            let escaped = serde_json::to_string(text).unwrap();
            for text in [text, &escaped[1..escaped.len() - 1]] {
                calls::play_rest(format!("{}{text}{}", &seed[..*place], &seed[end..]).as_bytes());
            }
        }
    }
}

/// Of each seed, each byte is another one, goes, or is there twice. The seeds were signed once: a signature is another one
/// each time.
#[test]
fn whatever_certificate_is_shown_allows_what_is_written_in_it() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/seeds/certificates");
    for seed in std::fs::read_dir(folder).unwrap() {
        let seed = std::fs::read(seed.unwrap().path()).unwrap();
        certificates::play(&seed);
        for (place, byte) in seed.iter().copied().enumerate() {
            let put = match place % 8 {
                0 => vec![],
                1 => vec![byte, byte],
                2 => vec![0],
                3 => vec![u8::MAX],
                4 => vec![byte.wrapping_add(1)],
                bit => vec![byte ^ (1 << bit)],
            };
            certificates::play(&[&seed[..place], &put, &seed[place + 1..]].concat());
        }
    }
}

/// What the seeds are, lest mutations begin with certificates that allow nothing.
#[test]
fn the_certificates_that_mutations_begin_with_name_clusters_and_administrators() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/seeds/certificates");
    let expected: [(&str, &[&str], &[&str]); 5] = [
        ("admin", &["spiffe://prod/admin"], &[]),
        ("cluster", &["spiffe://prod/cluster/east"], &["mcs-controller"]),
        ("dns", &[], &["mcs-controller.mcs.svc", "west.prod"]),
        ("nobody", &["https://example.com/x"], &["*.prod"]),
        ("several", &["spiffe://prod/cluster/east", "spiffe://prod/cluster/west"], &["east.prod"]),
    ];
    for (name, uris, dns) in expected {
        let names = Certificate::read(&std::fs::read(folder.join(name)).unwrap()).unwrap().names.unwrap();
        assert!(names.uris == uris && names.dns == dns, "{name}: {names:?}");
    }
}

/// Texts are UTF-8 before anything else is looked at: the transport refuses what is not, and names the field.
#[test]
fn what_is_no_utf_8_is_refused_with_the_name_of_its_field() {
    let (_, script) = seeds::grpc().swap_remove(0);
    let texts = [
        ("Members/Register", "prod", "RegisterRequest.clusterset"),
        ("Members/Register", "u-1", "RegisterRequest.uid"),
        ("Members/Register", "eu-west-1", "RegisterRequest.region"),
        ("Members/Register", "mcs-controller-0", "RegisterRequest.instance"),
        ("Members/Write", "cart", "ServiceKey.name"),
        ("Members/Write", "10.0.0.0", "Endpoint.address"),
        ("Members/Write", "eu-west-1a", "Endpoint.zone"),
        ("Members/Sync", "prod", "SyncBegin.clusterset"),
        ("Imports/Watch", "west", "WatchRequest.cluster"),
        ("Imports/ListExports", "shop/cart/east~0", "ListExportsRequest.page_token"),
    ];
    for (method, text, field) in texts {
        for bad in texts::BYTES {
            let call =
                script.calls.iter().find(|call| calls::METHODS[call.method as usize] == method).unwrap();
            let mut message = call.messages[0].clone();
            let place = message.windows(text.len()).position(|window| window == text.as_bytes()).unwrap();
            // As long as before, so that all else stays what it is.
            let bad = &bad[bad.len().saturating_sub(text.len())..];
            message[place + text.len() - bad.len()..place + text.len()].copy_from_slice(bad);
            let answer = calls::call_grpc(method, &message);
            assert_eq!(answer.0, tonic::Code::Internal, "{method} {field}: {answer:?}");
            assert!(answer.1.contains(field) && answer.1.contains("UTF-8"), "{method} {field}: {answer:?}");
        }
    }
}
