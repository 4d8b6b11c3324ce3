//! JSON → messages → JSON.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| mcs_fuzz::json::play(bytes));
