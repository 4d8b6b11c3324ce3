use mcs_core::time::{ManualClock, WallTime};
use prometheus::Registry;
use tempfile::TempDir;

use super::*;
use crate::tls::testing::{Ca, Issued, OVER};

#[test]
fn a_certificate_needs_its_key_and_its_key_a_certificate() {
    let check = |cert: bool, key: bool| {
        let file = |is_there: bool| is_there.then(|| PathBuf::from("x"));
        let flags = RegistryTlsArgs {
            registry_tls_ca_file: None,
            registry_tls_cert_file: file(cert),
            registry_tls_key_file: file(key),
        };
        flags.check()
    };
    assert_eq!([check(false, false), check(true, true)], [Ok(()), Ok(())]);
    assert_eq!(check(true, false), Err("--registry-tls-cert-file needs --registry-tls-key-file".to_owned()));
    assert_eq!(check(false, true), Err("--registry-tls-key-file needs --registry-tls-cert-file".to_owned()));
}

#[test]
fn files_of_a_caller_that_cannot_be_used_are_named_with_the_cause() {
    let (ca, other) = (Ca::new("ca"), Ca::new("other"));
    let good = ca.server(1);
    let cases = [
        (Disk::new("", &good), "ca.crt", "it holds no certificate in PEM"),
        (Disk::new(&ca.pem(), &Issued { cert: String::new(), ..good.clone() }), "tls.crt", "no certificate"),
        (Disk::new(&ca.pem(), &Issued { key: String::new(), ..good.clone() }), "tls.key", "no key in PEM"),
        (
            Disk::new(&ca.pem(), &Issued { key: other.server(1).key, ..good.clone() }),
            "tls.key",
            "is not that of the certificate",
        ),
    ];
    for (disk, file, cause) in cases {
        let error = disk.load().unwrap_err().to_string();
        assert!(error.contains(file) && error.contains(cause), "{cause}: {error}");
    }
    let disk = Disk::new(&ca.pem(), &good);
    std::fs::remove_file(disk.path("tls.key")).unwrap();
    let error = disk.load().unwrap_err().to_string();
    assert!(error.starts_with("cannot read ") && error.contains("tls.key: No such file"), "{error}");
}

/// It must go on serving its cluster.
#[test]
fn a_caller_starts_with_a_certificate_that_has_expired() {
    let ca = Ca::new("ca");
    let disk = Disk::new(&ca.pem(), &ca.issue(&["localhost"], OVER, 7));
    let registry = Registry::new();
    let metrics = Metrics::register(&registry, "t_", &[]).unwrap();
    ClientTls::load(disk.files(), Arc::new(ManualClock::at(TODAY)), metrics).unwrap();
    let told = told(&registry);
    assert!(told.contains("t_tls_certificate_expiry_timestamp_seconds{file=\"cert\"} 1577836800"), "{told}");
    assert!(told.contains("t_tls_certificate_expiry_timestamp_seconds{file=\"ca\"} 4102444800"), "{told}");
}

/// O58: of the side that calls.
#[test]
fn new_files_of_a_caller_are_used_and_bad_ones_keep_the_old() {
    let ca = Ca::new("ca");
    let disk = Disk::new(&ca.pem(), &ca.server(1));
    let tls = disk.load().unwrap();
    let look = || tls.note(tls.shared.files.take(tls.shared.files.source().read_now()));
    let serial = || tls.shared.files.current().own.as_ref().unwrap().serial.clone();
    let first = tls.config();

    disk.write(&ca.pem(), &Issued { key: ca.server(3).key, ..ca.server(2) });
    look();
    look();
    assert_eq!(serial(), "01");
    assert!(Arc::ptr_eq(&first, &tls.config()));

    disk.write(&ca.pem(), &ca.server(4));
    look();
    look();
    assert_eq!(serial(), "04");
    assert!(!Arc::ptr_eq(&first, &tls.config()));

    disk.write(&Ca::new("next").pem(), &ca.server(4));
    let fourth = tls.config();
    look();
    look();
    assert!(!Arc::ptr_eq(&fourth, &tls.config()), "the CA alone changed");
}

const TODAY: WallTime = WallTime::from_unix_secs(1_795_978_809);

struct Disk(TempDir);

impl Disk {
    fn new(ca: &str, own: &Issued) -> Self {
        let disk = Self(tempfile::tempdir().unwrap());
        disk.write(ca, own);
        disk
    }

    fn write(&self, ca: &str, own: &Issued) {
        for (name, text) in [("ca.crt", ca), ("tls.crt", &own.cert), ("tls.key", &own.key)] {
            std::fs::write(self.path(name), text).unwrap();
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn files(&self) -> ClientFiles {
        ClientFiles { ca: Some(self.path("ca.crt")), own: Some((self.path("tls.crt"), self.path("tls.key"))) }
    }

    fn load(&self) -> Result<ClientTls, Bad> {
        ClientTls::load(self.files(), Arc::new(ManualClock::at(TODAY)), Metrics::default())
    }
}

fn told(registry: &Registry) -> String {
    prometheus::TextEncoder::new().encode_to_string(&registry.gather()).unwrap()
}
