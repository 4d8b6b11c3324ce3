//! Texts → URLs, names, versions and values of flags → texts.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| mcs_fuzz::url::play(text));
