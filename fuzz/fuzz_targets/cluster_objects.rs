//! Objects of a cluster's API server → what its controller exports.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| mcs_controller::play_objects(text));
