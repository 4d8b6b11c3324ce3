//! Requests → the REST API of a registry.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| mcs_fuzz::calls::play_rest(bytes));
