//! Hostile input: registrations and objects of an API server, whatever they are, over a fixed sequence of mutations.

pub mod pools;
pub mod requests;
#[path = "../../../proto/tests/it/hostile/texts.rs"]
pub mod texts;

use global_discovery_service::wire;
use std::path::Path;
use texts::{BYTES, TEXTS, is_plain, lengths};

#[test]
fn a_registration_that_is_no_utf_8_is_refused_in_plain_words() {
    let before = br#"{"key":{"cluster_id":"east","namespace":"ml","dgd_name":"chat"},"model":""#;
    for bad in BYTES {
        let refused = wire::registration(&[before, *bad, b"\"}"].concat()).unwrap_err().to_string();
        assert!(is_plain(&refused), "{refused:?}");
    }
}

/// The seeds of the fuzz target, of which a byte or a line is another one.
#[test]
fn whatever_is_requested_is_answered_in_the_form_of_the_api() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/seeds/pool_requests");
    for seed in std::fs::read_dir(folder).unwrap() {
        let seed = std::fs::read(seed.unwrap().path()).unwrap();
        requests::play(&seed);
        let put = TEXTS.iter().map(|text| text.as_bytes()).chain(BYTES.iter().copied()).cycle();
        let places = seed.iter().enumerate().filter(|(_, byte)| b" /\":,\n".contains(byte));
        for ((place, _), put) in places.zip(put) {
            requests::play(&[&seed[..=place], put, &seed[place + 1..]].concat());
            requests::play(&[&seed[..place], put, &seed[place..]].concat());
        }
        for long in lengths() {
            requests::play(&[b"GET /", long.as_bytes(), b"\nif-none-match: ", long.as_bytes()].concat());
        }
    }
}

/// The seeds of the fuzz target, of which each text, each name and each number is another one.
#[test]
fn whatever_is_registered_or_sliced_what_is_listed_is_valid() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/seeds/pools");
    for seed in std::fs::read_dir(folder).unwrap() {
        let seed = std::fs::read_to_string(seed.unwrap().path()).unwrap();
        pools::play(&seed);
        let quotes: Vec<usize> = seed.match_indices('"').map(|(place, _)| place).collect();
        for (number, places) in quotes.windows(2).enumerate() {
            let (before, after) = (&seed[..=places[0]], &seed[places[1]..]);
            // Each place gets a few of them, and all are put in somewhere.
            let long = lengths().nth(number / 8 % 4);
            for put in TEXTS
                .iter()
                .copied()
                .cycle()
                .skip(number)
                .take(2)
                .chain(long.as_deref().filter(|_| number % 8 == 0))
            {
                let escaped = serde_json::to_string(put).unwrap();
                pools::play(&format!("{before}{}{after}", &escaped[1..escaped.len() - 1]));
            }
        }
        for (number, (place, _)) in seed.match_indices(':').enumerate() {
            let values = ["null", "-1", "1e400", "18446744073709551616", "[]", "{}", "[[]]", "true", "\"\""];
            let end = seed[place..].find([',', '}', ']']).unwrap() + place;
            for value in values.iter().cycle().skip(number).take(2) {
                pools::play(&format!("{}:{value}{}", &seed[..place], &seed[end..]));
            }
        }
    }
}
