//! A member of a clusterset that a test plays: it has no API server and no controller, and tells the registry what the
//! test wants it to export.
//!
//! So a test of several exporters needs no further cluster. A peer keeps its lease until it is dropped, and tells all
//! anew when the registry has forgotten it, as a controller does.

use std::{collections::BTreeMap, sync::Arc};

use anyhow::{Context, Result, ensure};
use mcs_core::{
    ids::{ClusterUid, ServiceKey},
    model::{EndpointSet, ExportSpec},
    registry::{Op, Registration},
    timing::Timing,
    version::{Leaf, Sum, Version},
};
use mcs_proto::{client::RegistryClient, convert::Member};
use tokio::sync::Mutex;
use tokio_util::task::AbortOnDropHandle;

use crate::stack::Stack;

/// A played member. It leaves nothing: its lease runs out after it is dropped.
#[derive(Debug)]
pub struct Peer {
    session: Arc<Session>,
    _renewals: AbortOnDropHandle<()>,
}

#[derive(Debug)]
struct Session {
    client: RegistryClient,
    member: Member,
    told: Mutex<Told>,
}

#[derive(Debug, Default)]
struct Told {
    acts: u64,
    exports: BTreeMap<ServiceKey, (Arc<ExportSpec>, Arc<EndpointSet>)>,
}

impl Told {
    fn next(&mut self) -> Version {
        self.acts += 1;
        self.version()
    }

    const fn version(&self) -> Version {
        Version::new(1, self.acts)
    }

    fn sum(&self) -> Sum {
        self.leaves().map(|(_, leaf)| leaf).collect()
    }

    fn leaves(&self) -> impl Iterator<Item = (ServiceKey, Leaf)> + '_ {
        self.exports.iter().map(|(key, (spec, endpoints))| (key.clone(), Leaf::of(key, spec, endpoints)))
    }
}

impl Peer {
    /// Joins the clusterset of `stack` as `cluster`, exporting nothing yet.
    ///
    /// # Errors
    /// The registry did not take it.
    pub async fn join(stack: &Stack, cluster: &str) -> Result<Self> {
        Self::join_clusterset(stack, stack.clusterset(), cluster).await
    }

    /// Joins `clusterset` at the registry of `stack` as `cluster`, exporting nothing yet.
    ///
    /// # Errors
    /// The registry did not take it.
    pub async fn join_clusterset(stack: &Stack, clusterset: &str, cluster: &str) -> Result<Self> {
        let url = stack.url().parse()?;
        let member = Member {
            clusterset: clusterset.parse()?,
            cluster: cluster.parse()?,
            uid: ClusterUid::new(format!("{cluster:.40}-uid"))?,
        };
        let client = RegistryClient::new(&url, Timing::default())?;
        let session = Arc::new(Session { client, member, told: Mutex::default() });
        session.tell_all(&mut *session.told.lock().await).await?;
        let (renewing, pause) = (Arc::clone(&session), stack.lease() / 3);
        let renewals = tokio::spawn(async move {
            loop {
                tokio::time::sleep(pause).await;
                renewing.renew().await;
            }
        });
        Ok(Self { session, _renewals: AbortOnDropHandle::new(renewals) })
    }

    /// Exports `key` so from now on.
    ///
    /// # Errors
    /// The registry did not take it.
    pub async fn export(&self, key: &ServiceKey, spec: ExportSpec, endpoints: EndpointSet) -> Result<()> {
        self.export_all([(key.clone(), Arc::new(spec), Arc::new(endpoints))]).await
    }

    /// [`Peer::export`] of many at once, in one write.
    ///
    /// # Errors
    /// The registry did not take them.
    pub async fn export_all(
        &self,
        exports: impl IntoIterator<Item = (ServiceKey, Arc<ExportSpec>, Arc<EndpointSet>)>,
    ) -> Result<()> {
        let mut told = self.session.told.lock().await;
        let mut ops = Vec::new();
        for (key, spec, endpoints) in exports {
            told.exports.insert(key.clone(), (Arc::clone(&spec), Arc::clone(&endpoints)));
            ops.push(Op::Put {
                leaf: Leaf::of(&key, &spec, &endpoints),
                key,
                spec,
                endpoints,
                changed_at: None,
            });
        }
        self.session.write(&mut told, &ops).await
    }

    /// Exports `key` no longer.
    ///
    /// # Errors
    /// The registry did not take it.
    pub async fn withdraw(&self, key: &ServiceKey) -> Result<()> {
        let mut told = self.session.told.lock().await;
        told.exports.remove(key).with_context(|| format!("{key} is not exported"))?;
        self.session.write(&mut told, &[Op::Delete { key: key.clone() }]).await
    }
}

impl Session {
    async fn write(&self, told: &mut Told, ops: &[Op]) -> Result<()> {
        let version = told.next();
        let written = self.client.write(&self.member, version, ops).await?;
        for (key, result) in written.results {
            result.with_context(|| format!("the registry refuses {key}"))?;
        }
        ensure!(written.dropped.is_empty(), "the registry left endpoints out: {:?}", written.dropped);
        Ok(())
    }

    async fn tell_all(&self, told: &mut Told) -> Result<()> {
        let registration = Registration {
            uid: self.member.uid.clone(),
            region: None,
            instance: "peer".parse()?,
            build: "peer".parse()?,
            version: told.next(),
            sum: told.sum(),
        };
        self.client.register(&self.member, &registration).await?;
        let names: Vec<_> = told.leaves().collect();
        let (wants, stream) = self.client.begin_sync(&self.member, told.next(), &names).await?;
        let put = |key: ServiceKey| {
            let (spec, endpoints) = told.exports.get(&key)?;
            let leaf = Leaf::of(&key, spec, endpoints);
            Some(Op::Put {
                key,
                leaf,
                spec: Arc::clone(spec),
                endpoints: Arc::clone(endpoints),
                changed_at: None,
            })
        };
        let ops: Vec<_> = wants.into_iter().filter_map(put).collect();
        stream.finish(&ops).await?;
        Ok(())
    }

    async fn renew(&self) {
        let mut told = self.told.lock().await;
        let renewed = self.client.renew(&self.member, told.version(), told.sum()).await;
        if renewed.is_err() {
            // A registry that is away is asked again with the next renewal.
            let _ = self.tell_all(&mut told).await;
        }
    }
}
