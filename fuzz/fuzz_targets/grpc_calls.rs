//! Calls → the gRPC API of a registry.

#![no_main]

use libfuzzer_sys::{fuzz_mutator, fuzz_target};

fuzz_target!(|bytes: &[u8]| mcs_fuzz::calls::play_grpc(bytes));
fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    mcs_fuzz::mutate_message(data, size, max_size, seed)
});
