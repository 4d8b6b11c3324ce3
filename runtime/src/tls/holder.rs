//! From a client's certificate to who it is. The CA that signed it was verified; what it says is not trusted beyond
//! these forms, and all that could be meant otherwise names nobody:
//!
//! | names | holder |
//! |---|---|
//! | one SPIFFE id `spiffe://<clusterset>/cluster/<id>` | that cluster, whatever other names there are |
//! | one SPIFFE id `spiffe://<clusterset>/admin` | an administrator of that clusterset |
//! | any other SPIFFE id, or several | nobody |
//! | no SPIFFE id, one DNS name of two labels, `<id>.<clusterset>` | that cluster |
//! | none or several such DNS names, one with `*` or upper case letters | nobody |
//!
//! URIs of other schemes and DNS names of one label or more than two say nothing of clusters. The subject's common name
//! is not looked at.

use std::collections::BTreeSet;
use std::fmt;

use mcs_core::ids::{ClusterId, ClustersetId, InvalidId};
use mcs_core::text;

use super::{Certificate, Names};

const SPIFFE: &str = "spiffe://";

/// Names of a certificate are shown up to about so many bytes.
const SHOWN: usize = 200;

/// Who holds a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Holder {
    /// A cluster.
    Cluster {
        /// The clusterset it is in.
        clusterset: ClustersetId,
        /// The cluster.
        cluster: ClusterId,
    },
    /// An administrator of a clusterset.
    Admin {
        /// The clusterset.
        clusterset: ClustersetId,
    },
    /// Somebody whom the CA signed, and no more.
    Other {
        /// What the certificate is like, for people: "with the names …".
        shown: String,
    },
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cluster { clusterset, cluster } => {
                write!(f, "the certificate of cluster {cluster} of clusterset {clusterset}")
            }
            Self::Admin { clusterset } => {
                write!(f, "the certificate of an administrator of clusterset {clusterset}")
            }
            Self::Other { shown } => write!(f, "a certificate {shown}"),
        }
    }
}

impl Holder {
    /// Who shows `certificate`.
    pub fn of(certificate: &Certificate) -> Self {
        match &certificate.names {
            Some(names) => of_names(names),
            None => Self::Other { shown: "of which the names cannot be read".to_owned() },
        }
    }
}

fn of_names(names: &Names) -> Holder {
    let spiffe: Vec<&str> = names.uris.iter().map(String::as_str).filter(|uri| is_spiffe(uri)).collect();
    let named = match spiffe.as_slice() {
        [] => of_dns(&names.dns),
        [id] => of_spiffe(id),
        _ => None,
    };
    named.unwrap_or_else(|| Holder::Other { shown: shown(names) })
}

/// Whether a URI is of the scheme, also where it is not written as it should be.
fn is_spiffe(uri: &str) -> bool {
    uri.split_once(':').is_some_and(|(scheme, _)| scheme.eq_ignore_ascii_case("spiffe"))
}

fn of_spiffe(id: &str) -> Option<Holder> {
    let parts: Vec<&str> = id.strip_prefix(SPIFFE)?.split('/').collect();
    match parts.as_slice() {
        [clusterset, "cluster", cluster] => self::cluster(clusterset, cluster).ok(),
        [clusterset, "admin"] => Some(Holder::Admin { clusterset: ClustersetId::new(*clusterset).ok()? }),
        _ => None,
    }
}

fn of_dns(names: &[String]) -> Option<Holder> {
    let two_labels = |name: &&String| name.matches('.').count() == 1;
    let names: BTreeSet<&String> = names.iter().filter(two_labels).collect();
    let mut names = names.into_iter();
    let (Some(name), None) = (names.next(), names.next()) else { return None };
    let (id, clusterset) = name.split_once('.')?;
    cluster(clusterset, id).ok()
}

fn cluster(clusterset: &str, cluster: &str) -> Result<Holder, InvalidId> {
    Ok(Holder::Cluster { clusterset: ClustersetId::new(clusterset)?, cluster: ClusterId::new(cluster)? })
}

fn shown(names: &Names) -> String {
    let mut all: Vec<String> = names.uris.iter().map(|uri| format!("URI {uri:?}")).collect();
    all.extend(names.dns.iter().map(|name| format!("DNS {name:?}")));
    if all.is_empty() {
        return "without names".to_owned();
    }
    format!("with the names {}", text::shown(&all.join(", "), SHOWN))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_these_forms_say_who_holds_them() {
        let east = || cluster("prod", "east").unwrap();
        let admin = || Holder::Admin { clusterset: ClustersetId::new("prod").unwrap() };
        let cases: [(&[&str], &[&str], Holder); 9] = [
            (&["spiffe://prod/cluster/east"], &[], east()),
            (&["spiffe://prod/cluster/east"], &["west.prod", "*.prod"], east()),
            (&["https://example.com/x", "spiffe://prod/cluster/east"], &[], east()),
            (&["spiffe://prod/admin"], &[], admin()),
            (&["spiffe://prod/admin"], &["east.prod"], admin()),
            (&[], &["east.prod"], east()),
            (&[], &["east.prod", "east.prod"], east()),
            (&[], &["mcs-controller", "mcs-controller.mcs.svc", "east.prod"], east()),
            (&["https://example.com/x"], &["east.prod"], east()),
        ];
        for (uris, dns, holder) in cases {
            assert_eq!(of_names(&names(uris, dns)), holder, "{uris:?} {dns:?}");
        }
    }

    #[test]
    fn all_other_names_are_nobodys() {
        let cases: [(&[&str], &[&str]); 26] = [
            (&[], &[]),
            (&["spiffe://prod/cluster/East"], &[]),
            (&["spiffe://prod/cluster/east/"], &[]),
            (&["spiffe://prod/cluster/"], &[]),
            (&["spiffe://prod/cluster"], &[]),
            (&["spiffe://prod//cluster/east"], &[]),
            (&["spiffe://prod/cluster/east/west"], &[]),
            (&["spiffe://prod/cluster/../admin"], &[]),
            (&["spiffe://prod/cluster/e%61st"], &[]),
            (&["spiffe://prod/cluster/east?x"], &[]),
            (&["spiffe://prod/cluster/east#x"], &[]),
            (&["spiffe://prod/cluster/east\0"], &[]),
            (&["spiffe://user@prod/cluster/east"], &[]),
            (&["spiffe://prod:443/cluster/east"], &[]),
            (&["SPIFFE://prod/cluster/east"], &["east.prod"]),
            (&["spiffe:prod/cluster/east"], &["east.prod"]),
            (&["spiffe://prod/admin/"], &[]),
            (&["spiffe:///admin"], &[]),
            (&["spiffe://prod/ns/mcs/sa/controller"], &["east.prod"]),
            (&["spiffe://prod/cluster/east", "spiffe://prod/cluster/west"], &[]),
            (&["spiffe://prod/cluster/east", "spiffe://prod/admin"], &[]),
            (&[], &["east.prod", "west.prod"]),
            (&[], &["*.prod"]),
            (&[], &["*.prod", "east.prod"]),
            (&[], &["East.prod"]),
            (&[], &["east.prod."]),
        ];
        for (uris, dns) in cases {
            let holder = of_names(&names(uris, dns));
            assert!(matches!(holder, Holder::Other { .. }), "{uris:?} {dns:?}: {holder:?}");
        }
    }

    #[test]
    fn names_that_say_nothing_are_shown_and_cut() {
        let shown = |names: &Names| match of_names(names) {
            Holder::Other { shown } => shown,
            other => panic!("{other:?}"),
        };
        assert_eq!(shown(&Names::default()), "without names");
        let both = names(&["urn:x\n"], &["web.example.com"]);
        assert_eq!(shown(&both), "with the names URI \"urn:x\\n\", DNS \"web.example.com\"");
        let long = shown(&names(&["ü".repeat(1_000).as_str()], &[]));
        assert!(long.ends_with("ü...") && long.len() < SHOWN + 30, "{long}");
    }

    fn names(uris: &[&str], dns: &[&str]) -> Names {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Names { uris: owned(uris), dns: owned(dns), ..Names::default() }
    }
}
