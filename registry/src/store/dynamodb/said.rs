//! What replicas say, as it is written and read: beside what members are, and by nobody but the replica itself.

use std::collections::BTreeMap;

use mcs_core::ids::{ClustersetId, Epoch};
use mcs_core::replicas::{Beat, News};
use mcs_core::time::WallTime;
use mcs_runtime::dynamodb::Class;

use super::DynamoDb;
use super::codec::{self, Row, Unreadable, said};
use super::keys::{self, Key, Said};
use super::table::Fresh;
use crate::store::{Failed, Replica, Wrote};

/// An item of a replica: how often it had said something, and what it says.
type SaidItem = (u64, Result<Row, Unreadable>);

/// The items of one replica.
#[derive(Default)]
struct Items {
    beat: Option<SaidItem>,
    news: Option<SaidItem>,
}

impl DynamoDb {
    /// What all replicas say of a clusterset.
    pub(super) async fn read_said(&self, clusterset: &ClustersetId) -> Result<Vec<Replica>, Failed> {
        let pk = keys::said_in(clusterset);
        let mut replicas: BTreeMap<Epoch, Items> = BTreeMap::new();
        for item in self.table.query(Class::Urgent, pk, None, Fresh::Soon).await? {
            let Some((what, epoch)) = keys::read_said(&codec::sort_key(&item)) else { continue };
            let items = replicas.entry(epoch).or_default();
            let place = match what {
                Said::Beat => &mut items.beat,
                Said::News => &mut items.news,
            };
            *place = Some((said::number_of(&item), Row::read(item)));
        }
        Ok(replicas.into_iter().filter_map(|(epoch, items)| self.replica(clusterset, epoch, items)).collect())
    }

    /// What one replica says. An item that cannot be read is one that says nothing: the replica has heard nobody and has read
    /// of nobody, and of its news all were missed. So the others wait for it for as long as it lives, and no longer.
    fn replica(&self, clusterset: &ClustersetId, epoch: Epoch, items: Items) -> Option<Replica> {
        let unread = |what, problem: &Unreadable| {
            let Key { pk, sk } = keys::said(clusterset, epoch, what);
            self.log_unreadable(&pk, &sk, problem);
        };
        let (number, row) = items.beat?;
        let beat = row.and_then(|row| said::read_beat(epoch, &row)).unwrap_or_else(|problem| {
            unread(Said::Beat, &problem);
            Beat::silent(epoch, number)
        });
        let news = items.news.map(|(end, row)| {
            row.and_then(|row| said::read_news(epoch, &row)).unwrap_or_else(|problem| {
                unread(Said::News, &problem);
                News { epoch, first: end, entries: Vec::new() }
            })
        });
        Some(Replica { beat, news })
    }

    /// When each replica said something last.
    pub(super) async fn read_said_at(
        &self,
        clusterset: &ClustersetId,
    ) -> Result<BTreeMap<Epoch, WallTime>, Failed> {
        let items = self.table.query(Class::Urgent, keys::said_in(clusterset), None, Fresh::Soon).await?;
        let said_at = |item| match keys::read_said(&codec::sort_key(item))? {
            (Said::Beat, epoch) => Some((epoch, said::said_at(item)?)),
            (Said::News, _) => None,
        };
        Ok(items.iter().filter_map(said_at).collect())
    }

    /// Writes what this replica says. Nobody else does, so what stands in its way is no newer word of it: it would be read in
    /// place of this one for as long as it is there, and who believed itself heard would lose its clusters elsewhere.
    pub(super) async fn say(&self, row: Row) -> Result<(), Failed> {
        let Key { pk, sk } = row.key.clone();
        match self.table.put(Class::Urgent, row).await? {
            Wrote::Taken => Ok(()),
            Wrote::Older => Err(Failed::Refused {
                reason: format!(
                    "item {pk} {sk} of table {} is not replaced by what this replica says, and by nobody else: delete it",
                    self.table.name()
                ),
            }),
        }
    }
}
