//! The JSON of the service, as its clients write and read it.
//!
//! Unknown fields are ignored, so that a newer service can be read. What a list is called and whether it is complete
//! must be there: an answer without them, an empty one above all, says nothing of what exists.

use std::fmt;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Which pool; each part is a DNS-1123 label.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PoolKey {
    /// The cluster.
    pub cluster_id: String,
    /// The namespace.
    pub namespace: String,
    /// The DynamoGraphDeployment.
    pub dgd_name: String,
}

impl fmt::Display for PoolKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.cluster_id, self.namespace, self.dgd_name)
    }
}

/// Where a pool is, as far as it is known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Location {
    /// The region.
    #[serde(default)]
    pub region: Option<String>,
    /// The availability zone.
    #[serde(default)]
    pub availability_zone: Option<String>,
    /// The datacenter.
    #[serde(default)]
    pub datacenter: Option<String>,
}

/// One entry of a pool's capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capacity {
    /// How many workers it has.
    pub workers: u64,
}

/// What a relay says of its pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolRegistration {
    /// Which pool.
    pub key: PoolKey,
    /// Where it is.
    #[serde(default)]
    pub location: Location,
    /// The model it serves; not blank.
    pub model: String,
    /// What it can do.
    #[serde(default)]
    pub capabilities: Vec<String>,
    /// How much it can do.
    #[serde(default)]
    pub capacity: Vec<Capacity>,
    /// URLs of its frontends; listed only where no EndpointSlices give them.
    #[serde(default)]
    pub frontends: Vec<String>,
}

/// A pool as it is listed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolListing {
    /// Which pool.
    pub key: PoolKey,
    /// Where it is.
    #[serde(default)]
    pub location: Location,
    /// The model it serves.
    pub model: String,
    /// What it can do.
    pub capabilities: Vec<String>,
    /// URLs of its frontends.
    pub frontends: Vec<String>,
    /// How much it can do.
    pub capacity: Vec<Capacity>,
    /// What its relays are recognised by: `ip:<address>` of each.
    pub relay_identities: Vec<String>,
}

/// A replica of the Global Router.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouterReplica {
    /// Which: `<cluster>/<replica>`.
    pub id: String,
    /// Where it is reached.
    pub url: String,
}

/// What a registration is answered with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "LeaseBody")]
pub struct Lease {
    /// The pool is listed for this long.
    pub duration: Duration,
    /// It is to be registered again this often; above zero and below the lease.
    pub heartbeat_interval: Duration,
}

#[derive(Deserialize)]
struct LeaseBody {
    lease_duration_secs: u64,
    heartbeat_interval_secs: u64,
}

impl TryFrom<LeaseBody> for Lease {
    type Error = String;

    fn try_from(body: LeaseBody) -> Result<Self, String> {
        let LeaseBody { lease_duration_secs: duration, heartbeat_interval_secs: interval } = body;
        if interval == 0 || interval >= duration {
            return Err(format!(
                "heartbeat_interval_secs {interval}: must be above zero and below lease_duration_secs {duration}"
            ));
        }
        Ok(Self {
            duration: Duration::from_secs(duration),
            heartbeat_interval: Duration::from_secs(interval),
        })
    }
}

/// A list as it was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct List<T> {
    /// What it has.
    pub items: Vec<T>,
    /// Whether what it lacks is gone; else a reader keeps what it knew.
    pub complete: bool,
}

/// What the service lists: [`PoolListing`] and [`RouterReplica`].
pub trait Item:
    Clone + fmt::Debug + PartialEq + DeserializeOwned + Send + Sync + 'static + sealed::Sealed
{
    /// What tells one from another.
    type Key: Clone + fmt::Debug + fmt::Display + Ord + Send + Sync;
    /// The list's path, and its field on the wire.
    const LIST: &'static str;
    /// Which it is.
    fn key(&self) -> &Self::Key;
}

impl Item for PoolListing {
    type Key = PoolKey;
    const LIST: &'static str = "pools";

    fn key(&self) -> &PoolKey {
        &self.key
    }
}

impl Item for RouterReplica {
    type Key = String;
    const LIST: &'static str = "routers";

    fn key(&self) -> &String {
        &self.id
    }
}

/// Reads a list.
///
/// # Errors
/// What is missing or wrong.
pub fn read_list<T: Item>(body: &[u8]) -> Result<List<T>, serde_json::Error> {
    serde_json::from_slice::<T::ListBody>(body).map(Into::into)
}

/// Reads the key of what is listed no more.
///
/// # Errors
/// What is missing or wrong.
pub fn read_removed<T: Item>(body: &[u8]) -> Result<T::Key, serde_json::Error> {
    serde_json::from_slice::<T::RemovedBody>(body).map(T::removed)
}

/// The wire's shape of each list, which is nobody else's business.
mod sealed {
    use super::{List, PoolKey, PoolListing, RouterReplica};
    use serde::Deserialize;
    use serde::de::DeserializeOwned;

    pub trait Sealed: Sized {
        type ListBody: DeserializeOwned + Into<List<Self>>;
        type RemovedBody: DeserializeOwned;
        fn removed(body: Self::RemovedBody) -> <Self as super::Item>::Key
        where
            Self: super::Item;
    }

    #[derive(Deserialize)]
    pub struct Pools {
        pools: Vec<PoolListing>,
        complete: bool,
    }

    impl From<Pools> for List<PoolListing> {
        fn from(body: Pools) -> Self {
            Self { items: body.pools, complete: body.complete }
        }
    }

    #[derive(Deserialize)]
    pub struct RemovedPool {
        key: PoolKey,
    }

    impl Sealed for PoolListing {
        type ListBody = Pools;
        type RemovedBody = RemovedPool;

        fn removed(body: RemovedPool) -> PoolKey {
            body.key
        }
    }

    #[derive(Deserialize)]
    pub struct Routers {
        routers: Vec<RouterReplica>,
        complete: bool,
    }

    impl From<Routers> for List<RouterReplica> {
        fn from(body: Routers) -> Self {
            Self { items: body.routers, complete: body.complete }
        }
    }

    #[derive(Deserialize)]
    pub struct RemovedRouter {
        id: String,
    }

    impl Sealed for RouterReplica {
        type ListBody = Routers;
        type RemovedBody = RemovedRouter;

        fn removed(body: RemovedRouter) -> String {
            body.id
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read_with_its_completeness_and_without_unknown_fields() {
        let body =
            br#"{"routers":[{"id":"east/r-0","url":"http://10.0.0.1/","weight":1}],"complete":false,"at":3}"#;
        let replica = RouterReplica { id: "east/r-0".to_owned(), url: "http://10.0.0.1/".to_owned() };
        assert_eq!(read_list(body).expect("a list"), List { items: vec![replica], complete: false });
    }

    #[test]
    fn nothing_but_a_list_that_is_there_reads_as_no_routers() {
        for body in [
            "",
            "{}",
            "null",
            "[]",
            r#"{"routers":null,"complete":true}"#,
            r#"{"complete":true}"#,
            r#"{"routers":[]}"#,
            r#"{"pools":[],"complete":true}"#,
        ] {
            assert!(read_list::<RouterReplica>(body.as_bytes()).is_err(), "{body:?}");
        }
        let none = read_list::<RouterReplica>(br#"{"routers":[],"complete":true}"#).expect("a list");
        assert_eq!(none, List { items: vec![], complete: true });
    }

    #[test]
    fn a_lease_whose_heartbeats_could_not_keep_it_is_refused() {
        let read = |duration: u64, interval: u64| {
            let body =
                format!(r#"{{"lease_duration_secs":{duration},"heartbeat_interval_secs":{interval}}}"#);
            serde_json::from_str::<Lease>(&body).ok().map(|lease| lease.heartbeat_interval.as_secs())
        };
        assert_eq!([read(15, 5), read(6, 5), read(5, 5), read(15, 0)], [Some(5), Some(5), None, None]);
    }
}
