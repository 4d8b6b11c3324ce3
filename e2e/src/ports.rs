//! Picks free ports on loopback.
//!
//! From a range below the one that systems take ports of outgoing connections from, so that a port stays free
//! between the pick and the bind, and while a server that had it is restarted. Another process may still take
//! it; who starts a server tries again with other ports.

use std::{
    collections::BTreeSet,
    net::{Ipv4Addr, TcpListener},
    ops::Range,
    sync::{Mutex, PoisonError},
};

use anyhow::{Result, bail};
use rand::Rng;

const RANGE: Range<u16> = 20_000..30_000;
const ATTEMPTS: usize = 1_000;

static PICKED: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());

/// A port that nothing listens on and that this process has not picked before.
///
/// # Errors
/// None was found.
pub fn free_port() -> Result<u16> {
    let mut picked = PICKED.lock().unwrap_or_else(PoisonError::into_inner);
    for _ in 0..ATTEMPTS {
        let port = rand::rng().random_range(RANGE);
        if !picked.contains(&port) && TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            picked.insert(port);
            return Ok(port);
        }
    }
    bail!("no free port from {} to {} on 127.0.0.1 in {ATTEMPTS} attempts", RANGE.start, RANGE.end)
}
