//! What replicas say ↔ items: who was heard, and what changed.

use std::collections::BTreeSet;
use std::time::Duration;

use mcs_core::ids::{ClustersetId, Epoch, Region};
use mcs_core::replicas::{Beat, KeyTag, News, NewsEntry, Packed, UidTag};
use mcs_core::time::WallTime;
use mcs_core::validate::Refusal;
use mcs_core::version::Version;
use mcs_runtime::dynamodb::Item;
use prost::Message;

use super::super::bodies::{BeatBody, NewsBody};
use super::super::keys::{self, Said};
use super::{DAY, EXPIRES, Now, ORDER, Order, Row, Unreadable, bytes, readable, sixteen};

/// What a replica said lives so long after it; every refresh of the others reads it until then.
const SAID_LIVES: Duration = DAY;

/// How often a replica had said something with this item, as far as that can be read.
pub(in crate::store::dynamodb) fn number_of(item: &Item) -> u64 {
    let order = item.get(ORDER).cloned().and_then(bytes);
    order.as_deref().and_then(sixteen).map_or(0, |order| Order(order).number())
}

/// When a replica wrote this item, by its wall clock.
pub(in crate::store::dynamodb) fn said_at(item: &Item) -> Option<WallTime> {
    let expires: i64 = item.get(EXPIRES)?.as_n().ok()?.parse().ok()?;
    let lives = i64::try_from(SAID_LIVES.as_secs()).ok()?;
    Some(WallTime::from_unix_secs(expires.checked_sub(lives)?))
}

/// What a replica says of the renewals that it took.
pub(in crate::store::dynamodb) fn beat_row(clusterset: &ClustersetId, beat: &Beat, now: Now) -> Row {
    let Beat { epoch, region, number, echoes, dead, is_due, renewals: _ } = beat;
    let epochs = |epochs: &mut dyn Iterator<Item = &Epoch>| {
        epochs.flat_map(|Epoch(epoch)| epoch.to_be_bytes()).collect()
    };
    let packed = Packed::of(beat);
    let body = BeatBody {
        region: region.as_ref().map(ToString::to_string).unwrap_or_default(),
        echoed: epochs(&mut echoes.keys()),
        echoes: echoes.values().copied().collect(),
        dead: epochs(&mut dead.iter()),
        is_due: *is_due,
        renewals: packed.renewals.into_flattened(),
        step: packed.step,
        needs: 0,
    };
    Row {
        key: keys::said(clusterset, *epoch, Said::Beat),
        order: Some((*number).into()),
        body: body.encode_to_vec(),
        expires_at: now.after(SAID_LIVES),
        removed: false,
    }
}

/// Reads what a replica says of the renewals that it took.
pub(in crate::store::dynamodb) fn read_beat(epoch: Epoch, row: &Row) -> Result<Beat, Unreadable> {
    let body = BeatBody::decode(row.body.as_slice())?;
    readable(body.needs)?;
    let region =
        if body.region.is_empty() { None } else { Some(Region::new(body.region).map_err(Refusal::from)?) };
    let echoed = read_epochs(&body.echoed, "echoes")?;
    if echoed.len() != body.echoes.len() {
        return Err(Unreadable::Lists("echoes"));
    }
    let (renewals, rest) = body.renewals.as_chunks();
    if !rest.is_empty() {
        return Err(Unreadable::Lists("renewals"));
    }
    let number = row.order()?.number();
    let packed = Packed { step: body.step, renewals: renewals.to_vec() };
    Ok(Beat {
        epoch,
        region,
        number,
        echoes: echoed.into_iter().zip(body.echoes).collect(),
        dead: read_epochs(&body.dead, "dead")?.into_iter().collect::<BTreeSet<_>>(),
        is_due: body.is_due,
        renewals: packed.renewals(number),
    })
}

fn read_epochs(bytes: &[u8], list: &'static str) -> Result<Vec<Epoch>, Unreadable> {
    let (epochs, rest) = bytes.as_chunks();
    if !rest.is_empty() {
        return Err(Unreadable::Lists(list));
    }
    Ok(epochs.iter().map(|epoch| Epoch(u128::from_be_bytes(*epoch))).collect())
}

/// Bytes of an entry of news, without its version.
const ENTRY: usize = 14;

/// What a replica changed. An entry without a Service has no tag of one: all bits are none.
pub(in crate::store::dynamodb) fn news_row(clusterset: &ClustersetId, news: &News, now: Now) -> Row {
    let News { epoch, first, entries } = news;
    let mut body = NewsBody { first: *first, ..NewsBody::default() };
    for NewsEntry { member: UidTag(member), key, version } in entries {
        body.entries.extend(member);
        body.entries.extend(key.map_or([0; 8], |KeyTag(key)| key));
        body.versions.extend([version.term, version.seq]);
    }
    let told = first.saturating_add(entries.len() as u64);
    Row {
        key: keys::said(clusterset, *epoch, Said::News),
        order: Some(told.into()),
        body: body.encode_to_vec(),
        expires_at: now.after(SAID_LIVES),
        removed: false,
    }
}

/// Reads what a replica changed.
pub(in crate::store::dynamodb) fn read_news(epoch: Epoch, row: &Row) -> Result<News, Unreadable> {
    let body = NewsBody::decode(row.body.as_slice())?;
    readable(body.needs)?;
    let (entries, rest) = body.entries.as_chunks::<ENTRY>();
    let (versions, odd) = body.versions.as_chunks();
    if !rest.is_empty() || !odd.is_empty() || versions.len() != entries.len() {
        return Err(Unreadable::Lists("entries"));
    }
    let read = |(bytes, [term, seq]): (&[u8; ENTRY], &[u64; 2])| {
        let [member @ .., a, b, c, d, e, f, g, h] = *bytes;
        let key = [a, b, c, d, e, f, g, h];
        let key = (key != [0; 8]).then_some(KeyTag(key));
        NewsEntry { member: UidTag(member), key, version: Version::new(*term, *seq) }
    };
    Ok(News { epoch, first: body.first, entries: entries.iter().zip(versions).map(read).collect() })
}
