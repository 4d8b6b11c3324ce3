//! Records ↔ items. Pure: what is written reads back equal, whatever the process.
//!
//! An item has these attributes:
//!
//! | attribute | type | what it is |
//! |---|---|---|
//! | `pk`, `sk` | S | [`keys`] |
//! | `v` | B, 16 bytes | what must not go back: of a record or an export its version (term, then sequence, as big-endian numbers), of what a replica says how often it said something. Bytes compare like the numbers |
//! | `b` | B | the body, a protobuf message of [`bodies`] |
//! | `expires_at` | N | seconds since 1970 after which the table may collect the item |
//! | `r` | N | of a record: that its member was removed, as of `v` |
//!
//! Two releases share a table: fields and kinds of items that this one does not know are ignored, and a body that an
//! older release must not read for that says so in its field `needs`. What cannot be read is an error with its
//! reason, never nothing.

pub(super) mod said;

use std::sync::Arc;
use std::time::Duration;

use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::AttributeValue;
use mcs_core::ids::{ClustersetId, ServiceKey};
use mcs_core::model::{EndpointSet, Export, ExportSpec, MemberState, Section};
use mcs_core::time::{WallMillis, WallTime};
use mcs_core::validate::Refusal;
use mcs_core::version::{Leaf, Sum, Version};
use mcs_proto::convert::{Member, read_leaf, read_section, section};
use mcs_runtime::dynamodb::Item;
use prost::Message;

use super::bodies::{ExportBody, FORM, RecordBody};
use super::keys::{self, Key};
use super::pieces::{self, Digest, INLINE};
use crate::store::{Found, MemberRecord};

/// Names of attributes.
pub(super) const PK: &str = "pk";
pub(super) const SK: &str = "sk";
pub(super) const ORDER: &str = "v";
const BODY: &str = "b";
const EXPIRES: &str = "expires_at";
pub(super) const REMOVED: &str = "r";

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The record of a member lives so long after it was written, which is done daily while a registry serves the member: 7
/// days after its lease it is still there.
const RECORD_LIVES: Duration = DAY.saturating_mul(8);

/// An export and its pieces are written again when they are older than this.
const FADING: Duration = DAY.saturating_mul(7);

/// They live so long: once a day is looked whether they are fading, and 7 days after the last look they are still there.
const EXPORT_LIVES: Duration = DAY.saturating_mul(15);

/// Why an item cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unreadable {
    #[error("its attribute {0} is missing or of another type")]
    Attribute(&'static str),
    #[error("its key is none of ours")]
    Key,
    #[error("it is of form {needs}, and this release reads up to form {FORM}")]
    Newer { needs: u32 },
    #[error("its body is not what it should be: {0}")]
    Body(#[from] prost::DecodeError),
    #[error("its field {} is not what it should be", .0.field)]
    Field(#[from] Refusal),
    #[error("its lists {0} differ in length")]
    Lists(&'static str),
    #[error("it is of another member than its key")]
    Another,
    #[error("its endpoints begin without family and ports")]
    Headless,
    #[error("an endpoint of it is none")]
    Endpoint,
    #[error("its bytes are not those that its key names")]
    Content,
}

/// What must not go back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Order([u8; 16]);

impl From<Version> for Order {
    fn from(version: Version) -> Self {
        Self((u128::from(version.term) << 64 | u128::from(version.seq)).to_be_bytes())
    }
}

impl From<u64> for Order {
    fn from(number: u64) -> Self {
        Self(u128::from(number).to_be_bytes())
    }
}

impl Order {
    /// Nothing is newer.
    pub(super) const LAST: Self = Self([u8::MAX; 16]);

    fn number(self) -> u64 {
        let [.., a, b, c, d, e, f, g, h] = self.0;
        u64::from_be_bytes([a, b, c, d, e, f, g, h])
    }

    pub(super) fn version(self) -> Version {
        let [a, b, c, d, e, f, g, h, ..] = self.0;
        Version::new(u64::from_be_bytes([a, b, c, d, e, f, g, h]), self.number())
    }

    pub(super) fn value(self) -> AttributeValue {
        AttributeValue::B(Blob::new(self.0))
    }
}

/// An item of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) key: Key,
    /// None of a piece, which never changes.
    pub(super) order: Option<Order>,
    pub(super) body: Vec<u8>,
    /// Seconds since 1970.
    pub(super) expires_at: u64,
    /// Of a record: that its member was removed.
    pub(super) removed: bool,
}

impl Row {
    /// As the SDK has it.
    pub(super) fn item(self) -> Item {
        let text = AttributeValue::S;
        let mut item = Item::from([
            (PK.to_owned(), text(self.key.pk)),
            (SK.to_owned(), text(self.key.sk)),
            (BODY.to_owned(), AttributeValue::B(Blob::new(self.body))),
            (EXPIRES.to_owned(), AttributeValue::N(self.expires_at.to_string())),
        ]);
        item.extend(self.order.map(|order| (ORDER.to_owned(), order.value())));
        item.extend(self.removed.then(|| (REMOVED.to_owned(), AttributeValue::N("1".to_owned()))));
        item
    }

    /// Reads what the SDK has. When it goes is the table's business, so that is not looked at.
    pub(super) fn read(mut item: Item) -> Result<Self, Unreadable> {
        let key = Key { pk: text(&mut item, PK)?, sk: text(&mut item, SK)? };
        let order = match item.remove(ORDER) {
            Some(value) => {
                Some(Order(bytes(value).as_deref().and_then(sixteen).ok_or(Unreadable::Attribute(ORDER))?))
            }
            None => None,
        };
        let body = item.remove(BODY).and_then(bytes).ok_or(Unreadable::Attribute(BODY))?;
        Ok(Self { key, order, body, expires_at: 0, removed: item.contains_key(REMOVED) })
    }

    /// Its size as DynamoDB counts it: names and values of all attributes. Writes are billed by 1 KB of it, reads by 4 KB.
    pub(super) fn bytes(&self) -> usize {
        let Self { key: Key { pk, sk }, order, body, expires_at, removed } = self;
        let number = expires_at.to_string().len().div_ceil(2) + 1;
        let order = order.map_or(0, |Order(order)| ORDER.len() + order.len());
        PK.len()
            + pk.len()
            + SK.len()
            + sk.len()
            + BODY.len()
            + body.len()
            + EXPIRES.len()
            + number
            + order
            + if *removed { REMOVED.len() + 2 } else { 0 }
    }

    fn order(&self) -> Result<Order, Unreadable> {
        self.order.ok_or(Unreadable::Attribute(ORDER))
    }
}

/// The sort key of an item, for people to find it by.
pub(super) fn sort_key(item: &Item) -> String {
    item.get(SK).and_then(|value| value.as_s().ok()).cloned().unwrap_or_default()
}

fn text(item: &mut Item, name: &'static str) -> Result<String, Unreadable> {
    match item.remove(name) {
        Some(AttributeValue::S(text)) => Ok(text),
        _ => Err(Unreadable::Attribute(name)),
    }
}

fn bytes(value: AttributeValue) -> Option<Vec<u8>> {
    match value {
        AttributeValue::B(blob) => Some(blob.into_inner()),
        _ => None,
    }
}

fn sixteen(bytes: &[u8]) -> Option<[u8; 16]> {
    bytes.try_into().ok()
}

fn readable(needs: u32) -> Result<(), Unreadable> {
    if needs > FORM { Err(Unreadable::Newer { needs }) } else { Ok(()) }
}

/// A moment, and how it is written into items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Now(u64);

impl From<WallTime> for Now {
    fn from(now: WallTime) -> Self {
        Self(now.unix_secs().try_into().unwrap_or_default())
    }
}

impl Now {
    const fn after(self, lives: Duration) -> u64 {
        self.0.saturating_add(lives.as_secs())
    }

    fn day(self) -> u16 {
        u16::try_from(self.0 / DAY.as_secs()).unwrap_or(u16::MAX)
    }

    /// Whether what was written on `day` is to be written again.
    pub(super) fn is_fading(self, day: u16) -> bool {
        u64::from(self.day().saturating_sub(day)) >= FADING.as_secs() / DAY.as_secs()
    }
}

/// The record of a member.
pub(super) fn record_row(member: &Member, record: &MemberRecord, now: Now) -> Row {
    let MemberRecord { region, version, sum, state, claimed_at } = record;
    let told = Section {
        uid: member.uid.clone(),
        region: region.clone(),
        state: *state,
        whole: true,
        version: *version,
        sum: *sum,
    };
    let body = RecordBody {
        section: Some(section(&member.cluster, &told)),
        claimed_at: claimed_at.map_or(0, WallMillis::unix_millis),
        needs: 0,
    };
    Row {
        key: keys::record(member),
        order: Some((*version).into()),
        body: body.encode_to_vec(),
        expires_at: now.after(RECORD_LIVES),
        removed: false,
    }
}

/// What stands in place of the record of a member that was removed as of this version.
pub(super) fn removed_row(member: &Member, as_of: Version, now: Now) -> Row {
    let nothing = MemberRecord {
        region: None,
        version: as_of,
        sum: Sum::EMPTY,
        state: MemberState::Expired,
        claimed_at: None,
    };
    Row { removed: true, ..record_row(member, &nothing, now) }
}

/// Reads the record of a member of a clusterset, or what stands in place of it.
pub(super) fn read_record(clusterset: &ClustersetId, row: &Row) -> Result<(Member, Found), Unreadable> {
    let body = RecordBody::decode(row.body.as_slice())?;
    readable(body.needs)?;
    let (cluster, section) = read_section(body.section.unwrap_or_default())?;
    let member = Member { clusterset: clusterset.clone(), cluster, uid: section.uid };
    if keys::record(&member) != row.key {
        return Err(Unreadable::Another);
    }
    let version = row.order()?.version();
    if row.removed {
        return Ok((member, Found::Removed(version)));
    }
    let record = MemberRecord {
        region: section.region,
        version,
        sum: section.sum,
        state: section.state,
        claimed_at: millis(body.claimed_at),
    };
    Ok((member, Found::Record(record)))
}

fn millis(millis: u64) -> Option<WallMillis> {
    WallMillis::from_unix_millis(millis.try_into().ok()?)
}

/// A piece that an export names, and the day on which it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Named {
    pub(super) digest: Digest,
    pub(super) day: u16,
}

/// Bytes of a [`Named`].
const NAMED: usize = 18;

/// Where the endpoints of an export are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Endpoints {
    /// With it.
    Here(EndpointSet),
    /// In these pieces, in this order.
    Pieces(Vec<Named>),
}

/// An export without the endpoints that lie in pieces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Index {
    pub(super) key: ServiceKey,
    pub(super) version: Version,
    pub(super) leaf: Leaf,
    pub(super) spec: Arc<ExportSpec>,
    pub(super) changed_at: Option<WallMillis>,
    pub(super) endpoints: Endpoints,
    /// The day on which it was written.
    pub(super) day: u16,
}

impl Index {
    /// With its endpoints.
    pub(super) fn whole(self, endpoints: EndpointSet) -> Export {
        Export {
            version: self.version,
            leaf: self.leaf,
            spec: self.spec,
            endpoints: Arc::new(endpoints),
            changed_at: self.changed_at,
        }
    }

    /// The pieces that it names.
    pub(super) fn pieces(&self) -> &[Named] {
        match &self.endpoints {
            Endpoints::Here(_) => &[],
            Endpoints::Pieces(named) => named,
        }
    }

    /// Whether it is what its reader holds already.
    pub(super) fn is_that_of(&self, known: Option<&Export>) -> bool {
        known.is_some_and(|known| (known.version, known.leaf) == (self.version, self.leaf))
    }

    /// Whether it, or a piece of it, is to be written again.
    pub(super) fn is_fading(&self, now: Now) -> bool {
        now.is_fading(self.day) || self.pieces().iter().any(|piece| now.is_fading(piece.day))
    }
}

/// What is written of an export's endpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Laid {
    /// They lie in its item.
    Here(Vec<u8>),
    /// They lie in pieces.
    Pieces(Vec<(Digest, Vec<u8>)>),
}

/// How the endpoints of an export are laid out.
pub(super) fn lay(endpoints: &EndpointSet) -> Laid {
    let cut = pieces::cut(endpoints);
    if cut.iter().map(Vec::len).sum::<usize>() <= INLINE {
        Laid::Here(cut.concat())
    } else {
        Laid::Pieces(pieces::named(cut))
    }
}

/// Where the endpoints of an export were put.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Put {
    /// Into its item.
    Here(Vec<u8>),
    /// Into these pieces.
    Pieces(Vec<Named>),
}

/// An export.
pub(super) fn export_row(
    member: &Member,
    key: &ServiceKey,
    export: &Export,
    endpoints: Put,
    now: Now,
) -> Row {
    let (here, named) = match endpoints {
        Put::Here(here) => (here, Vec::new()),
        Put::Pieces(named) => (Vec::new(), named),
    };
    let mut pieces = Vec::with_capacity(named.len() * NAMED);
    for Named { digest, day } in named {
        pieces.extend(digest.0);
        pieces.extend(day.to_be_bytes());
    }
    let body = ExportBody {
        spec: Some(export.spec.as_ref().into()),
        leaf: export.leaf.to_bytes().to_vec(),
        changed_at: export.changed_at.map_or(0, WallMillis::unix_millis),
        endpoints: here,
        pieces,
        day: now.day().into(),
        needs: 0,
    };
    Row {
        key: keys::export(member, key),
        order: Some(export.version.into()),
        body: body.encode_to_vec(),
        expires_at: now.after(EXPORT_LIVES),
        removed: false,
    }
}

/// Reads an export.
pub(super) fn read_export(row: &Row) -> Result<Index, Unreadable> {
    let key = keys::read_export(&row.key.sk).ok_or(Unreadable::Key)?;
    let body = ExportBody::decode(row.body.as_slice())?;
    readable(body.needs)?;
    let spec = body.spec.ok_or_else(|| Refusal::missing("spec"))?;
    let endpoints = if body.pieces.is_empty() {
        Endpoints::Here(pieces::join([body.endpoints.as_slice()])?)
    } else {
        Endpoints::Pieces(read_named(&body.pieces)?)
    };
    Ok(Index {
        key,
        version: row.order()?.version(),
        leaf: read_leaf(&body.leaf)?,
        spec: Arc::new(spec.try_into()?),
        changed_at: millis(body.changed_at),
        endpoints,
        day: body.day.try_into().unwrap_or(u16::MAX),
    })
}

fn read_named(bytes: &[u8]) -> Result<Vec<Named>, Unreadable> {
    let (named, rest) = bytes.as_chunks::<NAMED>();
    if !rest.is_empty() {
        return Err(Unreadable::Lists("pieces"));
    }
    let read = |bytes: &[u8; NAMED]| {
        let [digest @ .., high, low] = *bytes;
        Named { digest: Digest(digest), day: u16::from_be_bytes([high, low]) }
    };
    Ok(named.iter().map(read).collect())
}

/// A piece of the endpoints of an export.
pub(super) fn piece_row(member: &Member, key: &ServiceKey, digest: Digest, body: Vec<u8>, now: Now) -> Row {
    Row {
        key: keys::piece(member, key, digest),
        order: None,
        body,
        expires_at: now.after(EXPORT_LIVES),
        removed: false,
    }
}

/// What was just written into a piece is named so.
pub(super) fn named_now(digest: Digest, now: Now) -> Named {
    Named { digest, day: now.day() }
}

#[cfg(test)]
mod tests;
