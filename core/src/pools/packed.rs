//! A registration as a process holds it: one piece of memory, which all who hold it share.
//!
//! A process holds a hundred thousand of them and looks at what is in one when it is listed. With an allocation for each
//! of its texts one takes four times as much. The format never leaves the process; one registration gives one sequence
//! of bytes, so equal bytes are equal registrations.
//!
//! ```text
//! registration = length of the key, key, [ region ], [ zone ], [ datacenter ], model, capabilities, capacity, frontends
//! list         = bytes of all, text or number...
//! ```

use super::{Capacity, Location, PoolRegistration};
use crate::ids::{InvalidId, check_dns_label};
use crate::packing::{Reader, Writer};
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// Room for most registrations.
const USUAL: usize = 256;

/// Which pool: cluster, namespace and DGD, each a DNS-1123 label. Ordered by these three.
///
/// Cheap to clone. The key of a [`PackedRegistration`] lies in it, and keeps it in memory.
#[derive(Clone)]
pub struct PoolKey(Arc<[u8]>);

/// Below every character of a label, so that the order of the texts is the order of the triples.
const SEPARATOR: char = '\0';

impl PoolKey {
    /// The pool of `dgd_name` in `namespace` of cluster `cluster_id`.
    ///
    /// # Errors
    /// The part that is not a DNS-1123 label, by its name in a registration.
    pub fn new(cluster_id: &str, namespace: &str, dgd_name: &str) -> Result<Self, InvalidId> {
        let parts =
            [("key.cluster_id", cluster_id), ("key.namespace", namespace), ("key.dgd_name", dgd_name)];
        for (field, text) in parts {
            check_dns_label(text).map_err(|problem| InvalidId::new(field, text, problem))?;
        }
        let mut packed = Writer::default();
        packed.text(&format!("{cluster_id}{SEPARATOR}{namespace}{SEPARATOR}{dgd_name}"));
        Ok(Self(packed.0.into()))
    }

    /// The cluster.
    pub fn cluster_id(&self) -> &str {
        self.parts().0
    }

    /// The namespace.
    pub fn namespace(&self) -> &str {
        self.parts().1
    }

    /// The DGD.
    pub fn dgd_name(&self) -> &str {
        self.parts().2
    }

    /// Cluster, namespace and DGD.
    pub fn parts(&self) -> (&str, &str, &str) {
        fn split(text: &str) -> Option<(&str, &str)> {
            let at = text.bytes().position(|byte| byte == SEPARATOR as u8)?;
            Some((text.get(..at)?, text.get(at + 1..)?))
        }
        let parts = Reader(&self.0).text().and_then(|text| {
            let (cluster_id, rest) = split(text)?;
            let (namespace, dgd_name) = split(rest)?;
            Some((cluster_id, namespace, dgd_name))
        });
        parts.unwrap_or_default()
    }

    fn bytes(&self) -> &[u8] {
        let mut reader = Reader(&self.0);
        reader.count().and_then(|length| reader.take(length)).unwrap_or_default()
    }
}

impl PartialEq for PoolKey {
    fn eq(&self, other: &Self) -> bool {
        self.bytes() == other.bytes()
    }
}

impl Eq for PoolKey {}

impl PartialOrd for PoolKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for PoolKey {
    fn cmp(&self, other: &Self) -> Ordering {
        self.bytes().cmp(other.bytes())
    }
}

impl Hash for PoolKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.bytes().hash(state);
    }
}

impl fmt::Display for PoolKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (cluster_id, namespace, dgd_name) = self.parts();
        write!(f, "{cluster_id}/{namespace}/{dgd_name}")
    }
}

impl fmt::Debug for PoolKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PoolKey({self})")
    }
}

/// What a relay registered. Cheap to clone.
#[derive(Clone)]
pub struct PackedRegistration(PoolKey);

/// What is in a [`PackedRegistration`], read where it lies.
#[derive(Clone, Debug, Default)]
pub struct Contents<'a> {
    /// The region.
    pub region: Option<&'a str>,
    /// The availability zone.
    pub availability_zone: Option<&'a str>,
    /// The datacenter.
    pub datacenter: Option<&'a str>,
    /// The model.
    pub model: &'a str,
    /// What it can do.
    pub capabilities: Texts<'a>,
    /// How much it can do.
    pub capacity: Capacities<'a>,
    /// URLs of its frontends.
    pub frontends: Texts<'a>,
}

/// Texts of a registration.
#[derive(Clone, Debug)]
pub struct Texts<'a>(Reader<'a>);

/// Capacities of a registration.
#[derive(Clone, Debug)]
pub struct Capacities<'a>(Reader<'a>);

impl PackedRegistration {
    /// Which pool.
    pub const fn key(&self) -> &PoolKey {
        &self.0
    }

    /// What is in it besides the key.
    pub fn contents(&self) -> Contents<'_> {
        let mut reader = Reader(&self.0.0);
        reader.text().and_then(|_| Contents::read(&mut reader)).unwrap_or_default()
    }

    /// The registration.
    pub fn unpack(&self) -> PoolRegistration {
        let Contents { region, availability_zone, datacenter, model, capabilities, capacity, frontends } =
            self.contents();
        PoolRegistration {
            key: self.key().clone(),
            location: Location {
                region: region.map(Into::into),
                availability_zone: availability_zone.map(Into::into),
                datacenter: datacenter.map(Into::into),
            },
            model: model.into(),
            capabilities: capabilities.map(Into::into).collect(),
            capacity: capacity.collect(),
            frontends: frontends.map(Into::into).collect(),
        }
    }

    /// Whether both say the same; the order of lists is ignored.
    pub fn says_the_same(&self, other: &Self) -> bool {
        let (one, two) = (&self.0.0, &other.0.0);
        // In another order it is as long.
        one == two || (one.len() == two.len() && self.unpack().says_the_same(&other.unpack()))
    }
}

impl From<&PoolRegistration> for PackedRegistration {
    fn from(registration: &PoolRegistration) -> Self {
        let PoolRegistration { key, location, model, capabilities, capacity, frontends } = registration;
        let Location { region, availability_zone, datacenter } = location;
        let mut packed = Writer(Vec::with_capacity(USUAL));
        packed.count(key.bytes().len());
        packed.0.extend(key.bytes());
        for text in [region, availability_zone, datacenter] {
            packed.maybe_text(text.as_deref());
        }
        packed.text(model);
        list(&mut packed, capabilities, |packed, text| packed.text(text));
        list(&mut packed, capacity, |packed, entry| packed.number(entry.workers));
        list(&mut packed, frontends, |packed, text| packed.text(text));
        Self(PoolKey(packed.0.into()))
    }
}

impl From<PoolRegistration> for PackedRegistration {
    fn from(registration: PoolRegistration) -> Self {
        Self::from(&registration)
    }
}

fn list<T>(packed: &mut Writer, items: &[T], write: impl Fn(&mut Writer, &T)) {
    let start = packed.0.len();
    items.iter().for_each(|item| write(packed, item));
    let end = packed.0.len();
    // How long they are is known when they are written, and stands before them.
    packed.count(end - start);
    let digits = packed.0.len() - end;
    if let Some(written) = packed.0.get_mut(start..) {
        written.rotate_right(digits);
    }
}

impl PartialEq for PackedRegistration {
    fn eq(&self, other: &Self) -> bool {
        self.0.0 == other.0.0
    }
}

impl Eq for PackedRegistration {}

impl fmt::Debug for PackedRegistration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.unpack().fmt(f)
    }
}

impl<'a> Contents<'a> {
    fn read(reader: &mut Reader<'a>) -> Option<Self> {
        Some(Self {
            region: reader.maybe_text()?,
            availability_zone: reader.maybe_text()?,
            datacenter: reader.maybe_text()?,
            model: reader.text()?,
            capabilities: Texts(part(reader)?),
            capacity: Capacities(part(reader)?),
            frontends: Texts(part(reader)?),
        })
    }
}

fn part<'a>(reader: &mut Reader<'a>) -> Option<Reader<'a>> {
    let length = reader.count()?;
    reader.take(length).map(Reader)
}

impl Default for Texts<'_> {
    fn default() -> Self {
        Self(Reader(&[]))
    }
}

impl Default for Capacities<'_> {
    fn default() -> Self {
        Self(Reader(&[]))
    }
}

impl<'a> Iterator for Texts<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        self.0.text()
    }
}

impl Iterator for Capacities<'_> {
    type Item = Capacity;

    fn next(&mut self) -> Option<Capacity> {
        self.0.number().map(|workers| Capacity { workers })
    }
}
