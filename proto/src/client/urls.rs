//! Which of several registries to talk to: the first healthy one, in the order that was given.
//!
//! [`mcs_core::outbox`] decides for the exporting side; this is for readers.

use crate::url::RegistryUrl;

/// Registry URLs in failover order, and which of them failed since the last round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Urls {
    urls: Vec<RegistryUrl>,
    current: usize,
}

impl Urls {
    /// The URLs in failover order; none when the list is empty.
    pub fn new(urls: Vec<RegistryUrl>) -> Option<Self> {
        if urls.is_empty() { None } else { Some(Self { urls, current: 0 }) }
    }

    /// The one to talk to.
    pub fn current(&self) -> &RegistryUrl {
        &self.urls[self.current]
    }

    /// Its place in the order.
    pub const fn index(&self) -> usize {
        self.current
    }

    /// It failed: the next one is tried, and after the last the first again. True when a round is over, so that the
    /// caller waits before it tries again.
    pub fn failed(&mut self) -> bool {
        self.current = (self.current + 1) % self.urls.len();
        self.current == 0
    }

    /// All of them, in order.
    pub fn all(&self) -> &[RegistryUrl] {
        &self.urls
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_is_followed_and_begun_again() {
        let urls = ["http://a:1", "http://b:1"].map(|url| url.parse().unwrap());
        let mut order = Urls::new(urls.to_vec()).unwrap();
        assert_eq!(order.current(), &urls[0]);
        assert!(!order.failed());
        assert_eq!(order.current(), &urls[1]);
        assert!(order.failed());
        assert_eq!(order.current(), &urls[0]);
        assert_eq!(Urls::new(Vec::new()), None);
    }
}
