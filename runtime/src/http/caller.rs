//! Who sends a request, as far as its connection tells. What that allows is for each program to say.

use std::fmt;

use axum::http::Extensions;
use tracing::debug;

use super::Peer;
use crate::tls::Holder;

/// Who is at the other end of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Caller {
    /// No client certificates are asked for: the network decides who may call.
    Anyone,
    /// Who holds the certificate that was shown.
    Holder(Holder),
    /// Client certificates are asked for, and none was shown; or nothing is known.
    Nobody,
}

impl Caller {
    /// Who is at the other end of a connection.
    pub fn identify(peer: &Peer, certificates_are_asked_for: bool) -> Self {
        match &peer.certificate {
            Some(certificate) => {
                let caller = Self::Holder(Holder::of(certificate));
                debug!(peer = %peer.address, serial = certificate.serial, %caller, "client identified");
                caller
            }
            None if certificates_are_asked_for => Self::Nobody,
            None => Self::Anyone,
        }
    }

    /// Who sent a request, from what the connection put into its extensions.
    pub fn of(extensions: &Extensions) -> Self {
        extensions.get().cloned().unwrap_or(Self::Nobody)
    }
}

impl fmt::Display for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Anyone => f.write_str("anyone"),
            Self::Holder(holder) => holder.fmt(f),
            Self::Nobody => f.write_str("a client that showed no certificate"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_or_a_connection_of_which_nothing_is_known_is_nobodys() {
        let peer = Peer { address: ([127, 0, 0, 1], 80).into(), certificate: None };
        assert_eq!(Caller::identify(&peer, false), Caller::Anyone);
        assert_eq!(Caller::identify(&peer, true), Caller::Nobody);
        assert_eq!(Caller::of(&Extensions::new()), Caller::Nobody);
    }
}
