//! Pages of clusters, exports and imports.
//!
//! An entry that would make a page too large (endpoints, mostly; participants) is told in several pieces; the token names the piece
//! to go on with. Pages of one list are read at several moments, as those of Kubernetes without a resourceVersion are;
//! who needs a consistent whole watches.

use mcs_core::ids::{ClusterId, ClustersetId, ServiceKey, check_dns_label};
use mcs_core::merge::imported;
use mcs_core::model::{Export, Header};
use mcs_core::registry::{Member, Registry};
use mcs_core::time::{Clock, Timestamp};
use mcs_core::validate::Refusal;
use mcs_proto::chunks::split;
use mcs_proto::convert::{held_imports, refused_exports};
use mcs_proto::frames::participants;
use mcs_proto::lists::{join_export, join_import};
use mcs_proto::pb;
use prost::Message;
use std::ops::Bound;
use std::time::Duration;

/// What a page may be.
#[derive(Clone, Debug)]
pub(crate) struct Page {
    /// At most this many entries.
    size: usize,
    /// At most about this many bytes as protobuf.
    bytes: usize,
    /// Where the page before ended.
    after: Option<Place>,
}

/// A place in a list: an entry, and how many of its pieces were told.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    /// The entry's key, its parts joined by `/`.
    entry: String,
    pieces: usize,
}

impl Place {
    /// Reads a token of a list whose keys have so many parts: each is a DNS label, as in the tokens that are given.
    fn read(token: &str, parts: usize) -> Option<Self> {
        let (entry, pieces) = token.split_once('~')?;
        let is_key =
            entry.split('/').count() == parts && entry.split('/').all(|part| check_dns_label(part).is_ok());
        let is_count = pieces.bytes().all(|byte| byte.is_ascii_digit());
        let pieces = pieces.parse().ok()?;
        (is_key && is_count).then(|| Self { entry: entry.to_owned(), pieces })
    }
}

/// A list, by the parts of its keys.
#[derive(Clone, Copy, Debug)]
pub(crate) enum List {
    /// By cluster.
    Clusters = 1,
    /// By namespace and name.
    Imports = 2,
    /// By namespace, name and cluster.
    Exports = 3,
}

/// The most entries of a page, and its size when none is asked for.
const MAX_PAGE: usize = 10_000;

impl Page {
    /// The page of a list that is asked for.
    ///
    /// # Errors
    /// A token that the list cannot have given.
    pub(crate) fn read(of: List, size: u32, token: &str, bytes: usize) -> Result<Self, Refusal> {
        let size = match usize::try_from(size) {
            Ok(0) | Err(_) => MAX_PAGE,
            Ok(size) => size.min(MAX_PAGE),
        };
        let after = match Place::read(token, of as usize) {
            None if !token.is_empty() => {
                return Err(Refusal::new("pageToken", "was not given by this list"));
            }
            after => after,
        };
        Ok(Self { size, bytes, after })
    }

    /// The page that begins with an entry, or with the next one where it is not there, and has no other.
    pub(crate) fn of_one(entry: &[&str], bytes: usize) -> Self {
        Self { size: 1, bytes, after: Some(Place { entry: entry.join("/"), pieces: 0 }) }
    }

    /// Fills the page from entries in order, each with its pieces; gives the token of the next page, empty when there
    /// is none. An entry's pieces are made only when they are needed.
    fn fill<T: Message, P: IntoIterator<Item = T>>(
        &self,
        entries: impl IntoIterator<Item = (String, impl FnOnce() -> P)>,
        mut take: impl FnMut(T),
    ) -> String {
        let (mut count, mut bytes) = (0, 0);
        for (entry, pieces) in entries {
            let told = match &self.after {
                Some(after) if entry == after.entry => after.pieces,
                _ => 0,
            };
            if count == self.size {
                return token(&entry, 0);
            }
            for (index, piece) in pieces().into_iter().enumerate().skip(told) {
                let size = piece.encoded_len();
                if bytes > 0 && bytes + size > self.bytes {
                    return token(&entry, index);
                }
                bytes += size;
                take(piece);
            }
            count += 1;
        }
        String::new()
    }

    /// The Service at which a page of exports or imports goes on: what is before is not looked at.
    fn service(&self) -> Option<ServiceKey> {
        let mut parts = self.after.as_ref()?.entry.split('/');
        ServiceKey::new(parts.next()?, parts.next()?).ok()
    }

    /// Whether an entry was told by an earlier page. The one that the token names goes on.
    fn is_before(&self, entry: &[&str]) -> bool {
        self.after.as_ref().is_some_and(|after| entry.iter().copied().lt(after.entry.split('/')))
    }
}

fn token(entry: &str, pieces: usize) -> String {
    format!("{entry}~{pieces}")
}

/// A registry to list, at one moment.
pub(crate) struct Lists<'a> {
    pub(crate) registry: &'a Registry,
    pub(crate) now: Timestamp,
    pub(crate) clock: &'a dyn Clock,
    pub(crate) lease: Duration,
}

impl Lists<'_> {
    /// The clusters by id.
    pub(crate) fn clusters(&self, clusterset: &ClustersetId, page: &Page) -> pb::ListClustersResponse {
        let mut answer =
            pb::ListClustersResponse { complete: self.registry.is_complete(self.now), ..Default::default() };
        let entries = self.registry.members().filter(|(id, _)| !page.is_before(&[id.as_str()]));
        let entries = entries.map(|(id, member)| (id.to_string(), || [self.cluster(clusterset, id, member)]));
        answer.next_page_token = page.fill(entries, |cluster| answer.clusters.push(cluster));
        answer
    }

    fn cluster(&self, clusterset: &ClustersetId, id: &ClusterId, member: &Member) -> pb::Cluster {
        let renewed_at = self.clock.wall_at(member.last_renewed());
        pb::Cluster {
            clusterset: clusterset.to_string(),
            cluster: id.to_string(),
            uid: member.uid().to_string(),
            region: region(member),
            instance: member.instance().to_string(),
            build: member.build().to_string(),
            version: Some(member.version().into()),
            sum: member.sum().to_bytes().to_vec(),
            lease: Some(pb::Lease {
                state: pb::LeaseState::from(member.state()).into(),
                renewed_at: Some(renewed_at.into()),
                duration: Some(self.lease.into()),
            }),
            exports: count(member.exports().len()),
            endpoints: count(member.endpoints()),
            held_imports: held_imports(&member.report().held_imports),
            refused_exports: refused_exports(&member.report().refused_exports),
        }
    }

    /// The exports by Service and cluster, of one cluster or of all.
    pub(crate) fn exports(
        &self,
        of: Option<&ClusterId>,
        include_endpoints: bool,
        page: &Page,
    ) -> pb::ListExportsResponse {
        let from = page.service();
        let entries: Box<dyn Iterator<Item = (&ServiceKey, &ClusterId, &Export)>> = match of {
            None => Box::new(self.registry.exports(from.as_ref())),
            Some(of) => {
                let range = (from.map_or(Bound::Unbounded, Bound::Included), Bound::Unbounded);
                let exports = self.registry.member(of).map(|member| member.exports().range(range));
                Box::new(exports.into_iter().flatten().map(move |(key, export)| (key, of, export)))
            }
        };
        let entries = entries
            .filter(|(key, id, _)| !page.is_before(&[key.namespace.as_str(), key.name.as_str(), id.as_str()]))
            .map(|(key, id, export)| {
                (format!("{key}/{id}"), move || export_pieces(key, id, export, include_endpoints))
            });
        let mut answer =
            pb::ListExportsResponse { complete: self.registry.is_complete(self.now), ..Default::default() };
        answer.next_page_token = page.fill(entries, |piece| join_export(&mut answer.exports, piece));
        answer
    }

    /// The imports by Service, with the endpoints of the clusters that are listed.
    pub(crate) fn imports(&self, include_endpoints: bool, page: &Page) -> pb::ListImportsResponse {
        let from = page.service();
        let entries = self
            .registry
            .imports(from.as_ref())
            .filter(|key| !page.is_before(&[key.namespace.as_str(), key.name.as_str()]))
            .map(|key| (key.to_string(), || self.import_pieces(key, include_endpoints)));
        let mut answer =
            pb::ListImportsResponse { complete: self.registry.is_complete(self.now), ..Default::default() };
        answer.next_page_token = page.fill(entries, |piece| join_import(&mut answer.imports, piece));
        answer
    }

    fn import_pieces(&self, key: &ServiceKey, include_endpoints: bool) -> Vec<pb::Import> {
        let Some(header) = self.registry.header(key) else { return Vec::new() };
        let Header { definition, .. } = &header;
        let (families, any_port) = (&definition.ip_families, !definition.ports.is_empty());
        let served = |family| families.is_empty() || families.contains(&family);
        let parts = header.participants.iter().filter_map(|participant| {
            let member =
                self.registry.member(&participant.cluster).filter(|member| member.state().is_listed())?;
            let export = member.exports().get(key)?;
            let endpoints = imported(&export.endpoints, &participant.good_ports, any_port, served);
            let serves = !participant.good_ports.is_empty() || !any_port;
            serves.then_some((&participant.cluster, member, endpoints))
        });
        let mut lists = participants(&header).into_iter();
        let definition = pb::Import {
            key: Some(key.into()),
            definition: Some((&header.definition).into()),
            participants: lists.next().unwrap_or_default(),
            conflicts: header.conflicts.iter().map(Into::into).collect(),
            parts: Vec::new(),
        };
        let further = |participants| pb::Import { key: Some(key.into()), participants, ..Default::default() };
        let mut pieces: Vec<_> = std::iter::once(definition).chain(lists.map(further)).collect();
        for (cluster, member, endpoints) in parts {
            let chunks = if include_endpoints {
                split(&endpoints).into_iter().map(Some).collect()
            } else {
                vec![None]
            };
            pieces.extend(chunks.into_iter().map(|chunk| pb::Import {
                key: Some(key.into()),
                parts: vec![pb::ImportPart {
                    cluster: cluster.to_string(),
                    region: region(member),
                    endpoint_count: count(endpoints.len()),
                    endpoints: chunk,
                }],
                ..Default::default()
            }));
        }
        pieces
    }
}

fn export_pieces(
    key: &ServiceKey,
    cluster: &ClusterId,
    export: &Export,
    include_endpoints: bool,
) -> Vec<pb::Export> {
    let first = pb::Export {
        cluster: cluster.to_string(),
        key: Some(key.into()),
        version: Some(export.version.into()),
        leaf: export.leaf.to_bytes().to_vec(),
        spec: Some((&*export.spec).into()),
        endpoint_count: count(export.endpoints.len()),
        endpoints: None,
    };
    let mut pieces = vec![first];
    if include_endpoints {
        pieces.extend(split(&export.endpoints).into_iter().map(|chunk| pb::Export {
            cluster: cluster.to_string(),
            key: Some(key.into()),
            endpoints: Some(chunk),
            ..Default::default()
        }));
    }
    pieces
}

fn region(member: &Member) -> String {
    member.region().map_or_else(String::new, ToString::to_string)
}

fn count(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
