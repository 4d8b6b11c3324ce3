//! Certificates of clients → what they allow.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|der: &[u8]| mcs_fuzz::certificates::play(der));
