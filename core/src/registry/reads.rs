//! What lists and watches are made of.

use super::{Member, Registry};
use crate::ids::{ClusterId, ServiceKey};
use crate::model::{Export, Header, PartSet};
use crate::version::Version;

impl Registry {
    /// All members by id.
    pub fn members(&self) -> impl Iterator<Item = (&ClusterId, &Member)> {
        self.members.iter()
    }

    /// One member.
    pub fn member(&self, cluster: &ClusterId) -> Option<&Member> {
        self.members.get(cluster)
    }

    /// The set that the parts of `cluster` are in the log, and the version as of which it is all of them; none while that
    /// is not known. It is asked after the changes of a call were drained, when section and parts are told alike.
    pub fn proven(&self, cluster: &ClusterId) -> Option<(PartSet, Version)> {
        self.members.get(cluster)?.proven()
    }

    /// The Services that are imported by key, from one on or all: what is taken costs, not what is before.
    pub fn imports(&self, from: Option<&ServiceKey>) -> impl Iterator<Item = &ServiceKey> {
        self.services.imported(from)
    }

    /// What the exports of a Service merge into; none when no member that is whole exports it.
    pub fn header(&self, key: &ServiceKey) -> Option<Header> {
        self.services.header(key, |cluster| self.members.get(cluster).is_some_and(|member| member.whole))
    }

    /// The exports of all members by Service and cluster, from a Service on or all: what is taken costs.
    pub fn exports(
        &self,
        from: Option<&ServiceKey>,
    ) -> impl Iterator<Item = (&ServiceKey, &ClusterId, &Export)> {
        let exports = self.services.exports(from);
        exports
            .filter_map(|(key, cluster)| Some((key, cluster, self.members.get(cluster)?.exports.get(key)?)))
    }
}
