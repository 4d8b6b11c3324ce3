//! The store that is a table of DynamoDB, shared by all registries of a clusterset, in one region or over a Global Table.
//!
//! **Layout** (docs/storage.md). Each replica has two items in a clusterset, [`Beat`] and [`News`]; each member has a record in
//! its clusterset's directory, and an item for each export in a partition of its own. Endpoints lie in the item of
//! their export where they are few, else in pieces under keys that are their content ([`pieces`]).
//!
//! **Guarantees.**
//!
//! - *An export's item is turned last.* It names pieces that are written by then. Nobody deletes a piece, or writes another
//!   one in its place, so whoever read the item finds the state that it names, also when it has been turned since. Over
//!   regions the item may be there before its pieces: then the export is [`Held::Torn`].
//! - *Nothing is replaced by something older*, by a condition on each item; that is decided within a region. Over
//!   regions the last writer wins, which is why readers never go back. A delete leaves nothing to compare with: a write
//!   that is still on its way brings back what was deleted, until whoever serves the member compares and deletes it again.
//! - *Whoever repeats a write makes it whole.* An export that is written again as it stands has all of its pieces written, and
//!   one whose write was given up goes on where that ended.
//! - *A change costs what it changes*: pieces that the item named already are not written, and those whose content a
//!   reader holds are not read.
//! - *What goes by itself is garbage*: nothing that a registry serves is older than its time to live.
//!
//! **Rejected**: one item for all endpoints (400 KB are 6,000 of them); transactions (they cost double, and end at 100
//! items); deleting pieces that are not named any more (a write each, and a reader that is slower than the writers finds
//! no state that is whole); an item for each cluster's lease (cost that grows with clusters and says nothing new).

mod bodies;
mod codec;
mod keys;
mod pieces;
mod said;
mod table;

use std::cmp;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream};
use mcs_core::ids::{ClusterId, ClustersetId, Epoch, ServiceKey};
use mcs_core::model::{EndpointSet, Export, MemberState};
use mcs_core::rate::Rate;
use mcs_core::replicas::{Beat, News, UidTag};
use mcs_core::time::{Clock, Timestamp, WallTime};
use mcs_core::version::Version;
use mcs_proto::convert::Member;
use mcs_runtime::dynamodb::{Class, Client, Item, PROBED};
use mcs_runtime::logs::Sparse;
use tokio::task::spawn_blocking;
use tracing::warn;

use self::codec::{Endpoints, Index, Laid, Named, Now, Order, Put, Row, Unreadable};
use self::keys::{Key, Said};
use self::pieces::Digest;
use self::table::{Fresh, Table};
use super::{Erased, Exports, Failed, Found, Held, Known, Members, Replica, Store, Torn, Write, Wrote};

/// So many exports of one call are written at once.
const SIDE_BY_SIDE: usize = 16;

/// No item may come near DynamoDB's 400 KB. The largest that the limits of an export allow has about 200
/// (docs/storage.md).
const MOST_BYTES: usize = 350 * 1024;

/// A write that was given up is gone on with within this, or begins anew: what was written may have been removed since.
const GOES_ON: Duration = Duration::from_secs(10 * 60);

/// Items that cannot be read are read again and again; so often that is logged.
const LINES: Rate = Rate::once_in(Duration::from_secs(60)).with_burst(10);

/// Records in a table.
pub struct DynamoDb {
    table: Table,
    clock: Arc<dyn Clock>,
    /// Pieces that were written for exports whose own items were not, since when.
    begun: Mutex<BTreeMap<Key, Begun>>,
    unreadable: Sparse,
    /// Whether it could be used once.
    is_usable: AtomicBool,
}

impl std::fmt::Debug for DynamoDb {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DynamoDb").field("table", &self.table).finish_non_exhaustive()
    }
}

/// Pieces of an export whose own item was not written yet.
struct Begun {
    since: Timestamp,
    pieces: BTreeMap<Digest, Named>,
}

/// An export whose pieces are to be read, and those that its reader holds.
struct InPieces {
    index: Index,
    named: Vec<Named>,
    held: BTreeMap<Digest, Vec<u8>>,
}

impl DynamoDb {
    /// The records in the table of `client`. `clock` says when they go if nobody writes them again.
    pub fn new(client: Client, clock: Arc<dyn Clock>) -> Self {
        Self {
            table: Table::new(client),
            clock,
            begun: Mutex::default(),
            unreadable: Sparse::new(LINES),
            is_usable: AtomicBool::new(false),
        }
    }

    fn now(&self) -> Now {
        self.clock.wall().into()
    }

    /// Looks at what was begun and may still be gone on with.
    fn begun<T>(&self, look: impl FnOnce(&mut BTreeMap<Key, Begun>) -> T) -> T {
        let now = self.clock.elapsed();
        let mut begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        begun.retain(|_, one| !(one.since + GOES_ON).has_passed(now));
        look(&mut begun)
    }

    /// Says that an item cannot be read, with its key and nothing of what is in it.
    fn log_unreadable(&self, pk: &str, sk: &str, problem: &Unreadable) {
        if let Some(unsaid) = self.unreadable.due(self.clock.elapsed()) {
            let table = self.table.name();
            // Whoever wrote the item may have written anything into its key.
            let (pk, sk) = (pk.escape_debug(), sk.escape_debug());
            warn!(table, %pk, %sk, %problem, unsaid, "item cannot be read: what was known before stands");
        }
    }

    async fn make(&self, member: &Member, write: Write) -> Result<Wrote, Failed> {
        match write {
            Write::Put(key, export) => self.put(member, &key, &export).await,
            Write::Delete(key, version) => {
                let key = keys::export(member, &key);
                self.begun(|begun| begun.remove(&key));
                self.table.delete(Class::Bulk, key, version.into()).await
            }
            Write::Member(record) => {
                let row = codec::record_row(member, &record, self.now());
                // Nobody who serves a member thinks so of it.
                match record.state {
                    MemberState::Expired => self.table.put_unless_removed(Class::Bulk, row).await,
                    _ => self.table.put(Class::Bulk, row).await,
                }
            }
        }
    }

    async fn put(&self, member: &Member, key: &ServiceKey, export: &Export) -> Result<Wrote, Failed> {
        let now = self.now();
        let laid = match lay(Arc::clone(&export.endpoints)).await? {
            Laid::Here(endpoints) => Put::Here(endpoints),
            Laid::Pieces(pieces) => match self.put_pieces(member, key, export, pieces, now).await? {
                Some(named) => Put::Pieces(named),
                None => return Ok(Wrote::Older),
            },
        };
        let row = codec::export_row(member, key, export, laid, now);
        let bytes = row.bytes();
        if bytes > MOST_BYTES {
            let reason =
                format!("export {key} needs an item of {bytes} bytes, of which there may be {MOST_BYTES}");
            return Err(Failed::Refused { reason });
        }
        let item = row.key.clone();
        let wrote = self.table.put(Class::Bulk, row).await?;
        self.begun(|begun| begun.remove(&item));
        Ok(wrote)
    }

    /// Writes those pieces of an export that are not there; none when something newer stands.
    async fn put_pieces(
        &self,
        member: &Member,
        key: &ServiceKey,
        export: &Export,
        pieces: Vec<(Digest, Vec<u8>)>,
        now: Now,
    ) -> Result<Option<Vec<Named>>, Failed> {
        let item = keys::export(member, key);
        let order = Order::from(export.version);
        let standing = self.table.get(Class::Bulk, item.clone(), Fresh::Now).await?.map(Row::read);
        let mut there =
            self.begun(|begun| begun.get(&item).map(|begun| begun.pieces.clone())).unwrap_or_default();
        if let Some(Ok(standing)) = standing {
            match standing.order.cmp(&Some(order)) {
                cmp::Ordering::Greater => {
                    self.begun(|begun| begun.remove(&item));
                    return Ok(None);
                }
                // Who writes again what stands may do so because a piece of it was lost.
                cmp::Ordering::Equal => {}
                cmp::Ordering::Less => {
                    let named = codec::read_export(&standing).map(|index| index.pieces().to_vec());
                    let lasting =
                        named.unwrap_or_default().into_iter().filter(|piece| !now.is_fading(piece.day));
                    there.extend(lasting.map(|piece| (piece.digest, piece)));
                }
            }
        }
        let named = pieces
            .iter()
            .map(|(digest, _)| there.get(digest).copied().unwrap_or_else(|| codec::named_now(*digest, now)));
        let named: Vec<Named> = named.collect();
        // Two groups may have the same endpoints, and so the same piece.
        let missing: BTreeMap<Digest, Vec<u8>> =
            pieces.into_iter().filter(|(digest, _)| !there.contains_key(digest)).collect();
        let digests: BTreeMap<Key, Digest> =
            missing.keys().map(|digest| (keys::piece(member, key, *digest), *digest)).collect();
        let rows =
            missing.into_iter().map(|(digest, bytes)| codec::piece_row(member, key, digest, bytes, now));
        let written = |keys: &[Key]| {
            let written = keys.iter().filter_map(|key| digests.get(key));
            let written = written.map(|digest| (*digest, codec::named_now(*digest, now)));
            let new = || Begun { since: self.clock.elapsed(), pieces: BTreeMap::new() };
            self.begun(|begun| begun.entry(item.clone()).or_insert_with(new).pieces.extend(written));
        };
        self.table.put_all(rows.collect(), written).await?;
        Ok(Some(named))
    }

    /// Reads the item of an export; what it is of, where that can be told.
    fn index(&self, pk: &str, item: Item) -> (Option<ServiceKey>, Result<Index, Unreadable>) {
        let sk = codec::sort_key(&item);
        let index = Row::read(item).and_then(|row| codec::read_export(&row));
        if let Err(problem) = &index {
            self.log_unreadable(pk, &sk, problem);
        }
        (keys::read_export(&sk), index)
    }

    /// Puts exports together; none of those of which a piece is missing or wrong.
    async fn whole(
        &self,
        member: &Member,
        exports: Vec<InPieces>,
    ) -> Result<Vec<(ServiceKey, Option<Export>)>, Failed> {
        let missing = exports.iter().flat_map(|export| {
            let named = export.named.iter().filter(|piece| !export.held.contains_key(&piece.digest));
            named.map(|piece| keys::piece(member, &export.index.key, piece.digest))
        });
        let read = self.table.get_all(missing.collect()).await?;
        let pk = keys::exports_of(member);
        let mut rows: BTreeMap<String, Vec<u8>> = BTreeMap::new();
        for (Key { sk, .. }, item) in read {
            match Row::read(item) {
                Ok(row) => {
                    rows.insert(sk, row.body);
                }
                Err(problem) => self.log_unreadable(&pk, &sk, &problem),
            }
        }
        let member = member.clone();
        let joined = away(move || {
            let join = |InPieces { index, named, held }: InPieces| {
                let key = index.key.clone();
                (key.clone(), join(&member, index, &named, &held, &rows), keys::export(&member, &key).sk)
            };
            exports.into_iter().map(join).collect::<Vec<_>>()
        });
        let told = joined.await?.into_iter().map(|(key, joined, sk)| match joined {
            Ok(export) => (key, export),
            Err(problem) => {
                self.log_unreadable(&pk, &sk, &problem);
                (key, None)
            }
        });
        Ok(told.collect())
    }

    /// Removes what a member exports, up to this order; says how many exports that were.
    async fn remove_exports(&self, pk: String, order: Order) -> Result<usize, Failed> {
        self.begun(|begun| begun.retain(|key, _| key.pk != pk));
        let (mut exports, mut after) = (0, None);
        loop {
            let (page, next) = self.table.keys(pk.clone(), keys::EXPORT, after).await?;
            let deleted =
                stream::iter(page.into_iter().map(|key| self.table.delete(Class::Bulk, key, order)));
            let deleted: Vec<Wrote> = deleted.buffer_unordered(SIDE_BY_SIDE).try_collect().await?;
            exports += deleted.into_iter().filter(|wrote| *wrote == Wrote::Taken).count();
            if next.is_none() {
                return Ok(exports);
            }
            after = next;
        }
    }

    fn cannot_read(&self, pk: &str, sk: &str, problem: &Unreadable) -> Failed {
        let what = format!("item {pk} {sk} of table {}", self.table.name());
        Failed::Unreadable { what, problem: problem.to_string() }
    }
}

#[tonic::async_trait]
impl Store for DynamoDb {
    fn is_shared(&self) -> bool {
        true
    }

    /// All that the table must be and allow is looked at until it was so once; after that, whether it answers.
    async fn check(&self) -> Result<(), Failed> {
        if self.is_usable.load(Ordering::Relaxed) {
            let nothing = Key { pk: PROBED.to_owned(), sk: PROBED.to_owned() };
            return self.table.get(Class::Urgent, nothing, Fresh::Soon).await.map(drop);
        }
        self.table.check().await?;
        self.is_usable.store(true, Ordering::Relaxed);
        Ok(())
    }

    async fn write(&self, member: &Member, writes: Vec<Write>) -> Result<Vec<Wrote>, Failed> {
        let mut wrote = Vec::with_capacity(writes.len());
        for apart in apart(writes) {
            let made = stream::iter(apart.into_iter().map(|write| self.make(member, write)));
            wrote.extend(made.buffered(SIDE_BY_SIDE).try_collect::<Vec<_>>().await?);
        }
        Ok(wrote)
    }

    /// That it was removed comes first, in place of the record: nobody is to see a record whose exports were lost. Pieces are
    /// left to the table, so that no reader misses one.
    async fn remove(&self, member: &Member, as_of: Version) -> Result<Erased, Failed> {
        let (order, record) = (Order::from(as_of), keys::record(member));
        let standing = self.table.get(Class::Bulk, record.clone(), Fresh::Now).await?;
        let is_there = standing.is_some();
        // What cannot be read has an order that says nothing.
        let standing = standing.and_then(|item| Row::read(item).ok()?.order);
        if standing.is_some_and(|standing| standing > order) {
            return Ok(Erased::Newer);
        }
        let marked = match standing {
            Some(standing) => {
                let row = codec::removed_row(member, standing.version(), self.now());
                self.table.put(Class::Bulk, row).await?
            }
            None if is_there => self.table.delete(Class::Bulk, record, order).await?,
            None => Wrote::Taken,
        };
        if marked == Wrote::Older {
            return Ok(Erased::Newer);
        }
        let exports = self.remove_exports(keys::exports_of(member), order).await?;
        Ok(Erased::Gone { exports })
    }

    async fn remove_damaged(
        &self,
        clusterset: &ClustersetId,
        cluster: &ClusterId,
        tag: UidTag,
    ) -> Result<Erased, Failed> {
        let (key, all) = (keys::record_of(clusterset, cluster, tag), Order::LAST);
        if let Some(item) = self.table.get(Class::Bulk, key.clone(), Fresh::Now).await? {
            match Row::read(item).and_then(|row| codec::read_record(clusterset, &row)) {
                // It was written anew since, or by a later release.
                Ok(_) | Err(Unreadable::Newer { .. }) => return Ok(Erased::Newer),
                Err(_) => {}
            }
        }
        let exports = self.remove_exports(keys::exports_in(clusterset, cluster, tag), all).await?;
        match self.table.delete(Class::Bulk, key, all).await? {
            Wrote::Taken => Ok(Erased::Gone { exports }),
            Wrote::Older => Ok(Erased::Newer),
        }
    }

    async fn members(&self, clusterset: &ClustersetId) -> Result<Members, Failed> {
        let pk = keys::directory_of(clusterset);
        let mut members = Members::default();
        for item in self.table.query(Class::Bulk, pk.clone(), None, Fresh::Soon).await? {
            let sk = codec::sort_key(&item);
            match Row::read(item).and_then(|row| codec::read_record(clusterset, &row)) {
                Ok((member, Found::Record(record))) => members.whole.push((member, record)),
                Ok((member, Found::Removed(as_of))) => members.removed.push((member, as_of)),
                Err(problem) => {
                    self.log_unreadable(&pk, &sk, &problem);
                    // Each key that a registry writes names its cluster: another one is of nobody that would be missed.
                    let Some(named) = keys::read_record(&sk) else { continue };
                    let torn = match problem {
                        Unreadable::Newer { .. } => Torn::Newer,
                        _ => Torn::Damaged,
                    };
                    members.torn.insert(named, torn);
                }
            }
        }
        Ok(members)
    }

    async fn member(&self, member: &Member) -> Result<Option<Found>, Failed> {
        let key = keys::record(member);
        let Some(item) = self.table.get(Class::Bulk, key.clone(), Fresh::Soon).await? else {
            return Ok(None);
        };
        match Row::read(item).and_then(|row| codec::read_record(&member.clusterset, &row)) {
            Ok((_, found)) => Ok(Some(found)),
            Err(problem) => {
                self.log_unreadable(&key.pk, &key.sk, &problem);
                Err(self.cannot_read(&key.pk, &key.sk, &problem))
            }
        }
    }

    async fn exports(&self, member: &Member, known: &Known) -> Result<Exports, Failed> {
        let pk = keys::exports_of(member);
        let items = self.table.query(Class::Bulk, pk.clone(), Some(keys::EXPORT), Fresh::Soon).await?;
        let (mut exports, mut in_pieces) = (Exports::default(), Vec::new());
        for item in items {
            match self.index(&pk, item) {
                (_, Ok(index)) if index.is_that_of(known.get(&index.key)) => {
                    exports.whole.extend(
                        known.get_key_value(&index.key).map(|(key, export)| (key.clone(), export.clone())),
                    );
                }
                (_, Ok(index)) => match index.endpoints.clone() {
                    Endpoints::Here(endpoints) => {
                        exports.whole.insert(index.key.clone(), index.whole(endpoints));
                    }
                    Endpoints::Pieces(named) => {
                        let held = held(known.get(&index.key)).await?;
                        in_pieces.push(InPieces { index, named, held });
                    }
                },
                (Some(key), Err(_)) => {
                    exports.torn.insert(key);
                }
                // Nothing that can be named: the sum of the record tells that something is missing.
                (None, Err(_)) => {}
            }
        }
        for (key, whole) in self.whole(member, in_pieces).await? {
            match whole {
                Some(export) => {
                    exports.whole.insert(key, export);
                }
                None => {
                    exports.torn.insert(key);
                }
            }
        }
        Ok(exports)
    }

    async fn export(
        &self,
        member: &Member,
        key: &ServiceKey,
        known: Option<&Export>,
    ) -> Result<Option<Held>, Failed> {
        let at = keys::export(member, key);
        let Some(item) = self.table.get(Class::Bulk, at.clone(), Fresh::Soon).await? else { return Ok(None) };
        let Ok(index) = self.index(&at.pk, item).1 else { return Ok(Some(Held::Torn)) };
        if let Some(known) = known.filter(|known| index.is_that_of(Some(known))) {
            return Ok(Some(Held::Whole(known.clone())));
        }
        match index.endpoints.clone() {
            Endpoints::Here(endpoints) => Ok(Some(Held::Whole(index.whole(endpoints)))),
            Endpoints::Pieces(named) => {
                let held = held(known).await?;
                let read = self.whole(member, vec![InPieces { index, named, held }]).await?;
                let whole = read.into_iter().next().and_then(|(_, whole)| whole);
                Ok(Some(whole.map_or(Held::Torn, Held::Whole)))
            }
        }
    }

    /// What is broken is among them: a registry that serves the member knows what it should be. What a later release wrote
    /// is not.
    async fn fading(&self, member: &Member) -> Result<BTreeSet<ServiceKey>, Failed> {
        let (now, pk) = (self.now(), keys::exports_of(member));
        let items = self.table.query(Class::Bulk, pk.clone(), Some(keys::EXPORT), Fresh::Soon).await?;
        let fading = items.into_iter().filter_map(|item| {
            let (key, index) = self.index(&pk, item);
            let is_fading = match index {
                Ok(index) => index.is_fading(now),
                Err(problem) => !matches!(problem, Unreadable::Newer { .. }),
            };
            key.filter(|_| is_fading)
        });
        Ok(fading.collect())
    }

    async fn replicas(&self, clusterset: &ClustersetId) -> Result<Vec<Replica>, Failed> {
        self.read_said(clusterset).await
    }

    async fn said_at(&self, clusterset: &ClustersetId) -> Result<BTreeMap<Epoch, WallTime>, Failed> {
        self.read_said_at(clusterset).await
    }

    async fn beat(&self, clusterset: &ClustersetId, beat: &Beat) -> Result<(), Failed> {
        self.say(codec::said::beat_row(clusterset, beat, self.now())).await
    }

    async fn news(&self, clusterset: &ClustersetId, news: &News) -> Result<(), Failed> {
        self.say(codec::said::news_row(clusterset, news, self.now())).await
    }

    async fn retire(&self, clusterset: &ClustersetId, replica: Epoch) -> Result<(), Failed> {
        let items = [Said::Beat, Said::News].map(|what| keys::said(clusterset, replica, what));
        self.table.delete_all(items.into()).await
    }
}

/// Writes that may be made side by side, in the order of those that may not: no two of one export, and the record of the
/// member alone.
fn apart(writes: Vec<Write>) -> Vec<Vec<Write>> {
    let mut apart: Vec<Vec<Write>> = Vec::new();
    let mut beside: Option<BTreeSet<ServiceKey>> = None;
    for write in writes {
        let key = match &write {
            Write::Put(key, _) | Write::Delete(key, _) => Some(key.clone()),
            Write::Member(_) => None,
        };
        let fits = match (&mut beside, &key) {
            (Some(keys), Some(key)) => keys.insert(key.clone()),
            _ => false,
        };
        match apart.last_mut() {
            Some(last) if fits => last.push(write),
            _ => {
                beside = key.map(|key| BTreeSet::from([key]));
                apart.push(vec![write]);
            }
        }
    }
    apart
}

/// Puts an export together; none when a piece is not there.
fn join(
    member: &Member,
    index: Index,
    named: &[Named],
    held: &BTreeMap<Digest, Vec<u8>>,
    read: &BTreeMap<String, Vec<u8>>,
) -> Result<Option<Export>, Unreadable> {
    let mut pieces = Vec::with_capacity(named.len());
    for Named { digest, .. } in named {
        let piece = match held.get(digest) {
            Some(held) => held,
            None => match read.get(&keys::piece(member, &index.key, *digest).sk) {
                Some(read) if Digest::of(read) == *digest => read,
                Some(_) => return Err(Unreadable::Content),
                None => return Ok(None),
            },
        };
        pieces.push(piece.as_slice());
    }
    let endpoints = pieces::join(pieces)?;
    Ok(Some(index.whole(endpoints)))
}

/// Sets of more bytes than this are laid out and put together away from the threads that serve controllers.
const LARGE: usize = 64 * 1024;

async fn lay(endpoints: Arc<EndpointSet>) -> Result<Laid, Failed> {
    if endpoints.bytes() < LARGE {
        Ok(codec::lay(&endpoints))
    } else {
        away(move || codec::lay(&endpoints)).await
    }
}

/// The pieces of an export that is held.
async fn held(known: Option<&Export>) -> Result<BTreeMap<Digest, Vec<u8>>, Failed> {
    match known {
        None => Ok(BTreeMap::new()),
        Some(known) => {
            let endpoints = Arc::clone(&known.endpoints);
            away(move || pieces::index(&endpoints)).await
        }
    }
}

async fn away<T: Send + 'static>(make: impl FnOnce() -> T + Send + 'static) -> Result<T, Failed> {
    let failed = |error: tokio::task::JoinError| Failed::Away { reason: error.to_string() };
    spawn_blocking(make).await.map_err(failed)
}
