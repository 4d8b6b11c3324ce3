//! Registrations of pools and EndpointSlices → the lists of the discovery service.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| mcs_fuzz::pools::play(text));
