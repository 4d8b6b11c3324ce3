//! Where registrations are kept: in the memory of one process, or in a table that replicas share.

use super::registrations::{RegistrationChange, Registrations};
use super::stored::{self, StoredRegistrations, TableNews, WallMoment};
use super::{Completeness, Lease, PoolKey, PoolRegistration};
use crate::time::Timestamp;

/// Registrations, wherever they are kept.
#[derive(Debug)]
pub enum Storage {
    /// In this process.
    Memory(Registrations),
    /// In a table.
    Table(Box<StoredRegistrations>),
}

impl Storage {
    /// In the memory of this process, which grants `lease`.
    pub fn memory(lease: Lease, now: Timestamp) -> Self {
        Self::Memory(Registrations::new(lease, now))
    }

    /// In a table.
    pub fn table(settings: stored::Settings) -> Self {
        Self::Table(Box::new(StoredRegistrations::new(settings)))
    }

    /// What it grants.
    pub const fn lease(&self) -> Lease {
        match self {
            Self::Memory(registrations) => registrations.lease(),
            Self::Table(stored) => stored.lease(),
        }
    }

    /// Registers a pool in memory; a table is told of by [`Storage::handle_table`].
    pub(super) fn register(&mut self, registration: PoolRegistration, now: Timestamp) {
        if let Self::Memory(registrations) = self {
            registrations.register(registration, now);
        }
    }

    pub(super) fn handle_table(&mut self, news: TableNews, now: Timestamp, wall: WallMoment) {
        if let Self::Table(stored) = self {
            stored.handle_news(news, now, wall);
        }
    }

    pub(super) fn is_renewed(
        &self,
        registration: &PoolRegistration,
        now: Timestamp,
        wall: WallMoment,
    ) -> bool {
        match self {
            Self::Memory(_) => false,
            Self::Table(stored) => stored.is_renewed(registration, now, wall),
        }
    }

    /// Registrations are taken from now on; relays need a lease until all have told theirs.
    pub(super) fn opened(&mut self, now: Timestamp) {
        match self {
            Self::Memory(registrations) => registrations.opened(now),
            Self::Table(stored) => stored.opened(now),
        }
    }

    pub(super) fn handle_timeout(&mut self, now: Timestamp) {
        match self {
            Self::Memory(registrations) => registrations.handle_timeout(now),
            Self::Table(stored) => stored.handle_timeout(now),
        }
    }

    pub(super) fn poll_timeout(&self, now: Timestamp) -> Option<Timestamp> {
        match self {
            Self::Memory(registrations) => registrations.poll_timeout(now),
            Self::Table(stored) => stored.poll_timeout(now),
        }
    }

    pub(super) fn next_change(&mut self) -> Option<RegistrationChange> {
        match self {
            Self::Memory(registrations) => registrations.next_change(),
            Self::Table(stored) => stored.next_change(),
        }
    }

    /// Whether the pool is registered, as far as this process knows.
    pub(super) fn has(&self, key: &PoolKey) -> bool {
        match self {
            Self::Memory(registrations) => registrations.has(key),
            Self::Table(stored) => stored.has(key),
        }
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Self::Memory(registrations) => registrations.len(),
            Self::Table(stored) => stored.len(),
        }
    }

    pub(super) fn has_view(&self) -> bool {
        match self {
            Self::Memory(_) => true,
            Self::Table(stored) => stored.has_view(),
        }
    }

    pub(super) fn age(&self, now: Timestamp) -> Option<std::time::Duration> {
        match self {
            Self::Memory(_) => None,
            Self::Table(stored) => stored.age(now),
        }
    }

    pub(super) fn completeness(&self, now: Timestamp) -> Completeness {
        match self {
            Self::Memory(registrations) => registrations.completeness(now),
            Self::Table(stored) => stored.completeness(now),
        }
    }
}
