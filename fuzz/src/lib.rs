//! What the fuzz targets look at: the properties of the workspace's own tests, in which the same code is run over a fixed
//! sequence of mutations.

#[path = "../../proto/tests/it/hostile/answers.rs"]
pub mod answers;
#[path = "../../registry/tests/it/hostile/calls.rs"]
pub mod calls;
#[path = "../../registry/tests/it/hostile/certificates.rs"]
pub mod certificates;
#[path = "../../proto/tests/it/hostile/json.rs"]
pub mod json;
#[path = "../../proto/tests/it/hostile/members.rs"]
pub mod members;
#[path = "../../proto/tests/it/hostile/mutate.rs"]
pub mod mutate;
#[path = "../../discovery/tests/it/hostile/pools.rs"]
pub mod pools;
#[path = "../../discovery/tests/it/hostile/requests.rs"]
pub mod requests;
#[path = "../../proto/tests/it/hostile/texts.rs"]
pub mod texts;
#[path = "../../proto/tests/it/hostile/url.rs"]
pub mod url;
#[path = "../../proto/tests/it/hostile/watch.rs"]
pub mod watch;

/// A mutation of a protobuf message in place, or libFuzzer's own now and then; the size of what came of it.
pub fn mutate_message(data: &mut [u8], size: usize, max_size: usize, seed: u32) -> usize {
    let mut random = mutate::Random::new(seed.into());
    if random.below(4) > 0 {
        let mutated = mutate::mutate(&data[..size], &mut random);
        if mutated.len() <= max_size && mutated.len() <= data.len() {
            data[..mutated.len()].copy_from_slice(&mutated);
            return mutated.len();
        }
    }
    libfuzzer_sys::fuzzer_mutate(data, size, max_size)
}
