//! Requests → the HTTP API of the discovery service.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| mcs_fuzz::requests::play(bytes));
