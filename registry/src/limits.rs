//! The limits that a request may hit, by the names that callers are told and that metrics count.

use mcs_core::registry::{MAX_CLUSTERS, MAX_EXPORTS, MAX_WRITES};

/// A limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limit {
    /// Bytes of one answer.
    AnswerBytes,
    /// Clustersets.
    Clustersets,
    /// Large answers that are being read, over both ports.
    LargeAnswers,
    /// Clusters of a clusterset.
    Clusters,
    /// Connections of a port.
    Connections,
    /// Exports of a cluster.
    Exports,
    /// Bytes of a message.
    MessageBytes,
    /// Watches and syncs.
    Streams,
    /// Writes of a cluster in a second.
    Writes,
    /// Bytes that the bodies of requests under way hold.
    RequestBytes,
    /// Exports that one sync names.
    SyncNames,
    /// Bytes of one write.
    WriteBytes,
    /// Changes in one write.
    WriteChanges,
}

impl Limit {
    /// All of them.
    pub(crate) const ALL: [Self; 13] = [
        Self::AnswerBytes,
        Self::Clustersets,
        Self::LargeAnswers,
        Self::Clusters,
        Self::Connections,
        Self::Exports,
        Self::MessageBytes,
        Self::Streams,
        Self::Writes,
        Self::RequestBytes,
        Self::SyncNames,
        Self::WriteBytes,
        Self::WriteChanges,
    ];

    /// Its name: that of its flag, where it has one.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::AnswerBytes => "answer-bytes",
            Self::Clustersets => "clustersets",
            Self::LargeAnswers => "large-answers",
            Self::Clusters => MAX_CLUSTERS,
            Self::Connections => "max-connections",
            Self::Exports => MAX_EXPORTS,
            Self::MessageBytes => "max-message-bytes",
            Self::Streams => "max-streams",
            Self::Writes => MAX_WRITES,
            Self::RequestBytes => "request-bytes",
            Self::SyncNames => "sync-names",
            Self::WriteBytes => "write-bytes",
            Self::WriteChanges => "write-changes",
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::CommandFactory;

    use super::*;
    use crate::args::Args;

    #[test]
    fn a_limit_that_is_named_like_a_flag_is_set_by_it() {
        let command = Args::command();
        let flags: BTreeSet<&str> = command.get_arguments().filter_map(clap::Arg::get_long).collect();
        let named: BTreeSet<&str> = Limit::ALL.map(Limit::name).into();
        assert_eq!(named.len(), Limit::ALL.len());
        let of_flags = |names: &BTreeSet<&'static str>| {
            names.iter().copied().filter(|name| name.starts_with("max-")).collect::<BTreeSet<_>>()
        };
        let without_limit = ["max-connection-age"];
        let flags = flags.iter().copied().filter(|flag| flag.starts_with("max-"));
        let flags: BTreeSet<&str> = flags.filter(|flag| !without_limit.contains(flag)).collect();
        assert_eq!(of_flags(&named), flags);
    }
}
