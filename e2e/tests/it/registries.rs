//! Which registry a controller talks to, and over what: failover and the way back, peers that only seem to live, TLS with
//! files that change.

use std::{fs, path::PathBuf, time::Duration};

use anyhow::{Result, ensure};
use mcs_core::names::CONDITION_READY;
use mcs_e2e::{
    objects::Port,
    programs::Signal,
    relay::Relay,
    shared::pair,
    stack::{Stack, StackOptions, get},
    wait_for,
};
use mcs_runtime::tls::testing::{Ca, GOOD, Issued};
use tokio::net::TcpListener;

use crate::support::{Place, READY};

const HTTP: [Port<'_>; 1] = [("http", 80)];

/// Two registries behind a peer that takes connections and never answers. Every change arrives, whichever registry is
/// used. These share no store, so each knows only who has come to it; what may go meanwhile is for tests of one registry.
#[tokio::test]
async fn a_registry_that_dies_or_stands_still_is_left_for_the_next_and_gone_back_to_when_it_is_well()
-> Result<()> {
    let pair = pair().await?;
    let namespace = pair.namespace("urls").await?;
    let clusters = [&pair.east, &pair.west];
    let options =
        StackOptions { lease: Duration::from_secs(5), ..StackOptions::for_namespace(namespace.name()) };
    let (hole, _taken) = black_hole().await?;
    let mut first = Stack::start_without_controllers(options.clone()).await?;
    let mut second = Stack::start_without_controllers(options).await?;
    let urls = [hole.clone(), first.url(), second.url()];
    *first.registry_urls() = urls.to_vec();
    first.start_controllers(&clusters).await?;
    let [east, west] = pair.clients().map(|client| Place::new(client, namespace.name(), "cart"));
    east.export(&HTTP, &["10.0.0.1"]).await?;
    west.imports(&[("east", &["10.0.0.1"])]).await?;
    east.says(&READY).await?;
    for cluster in clusters {
        uses(&first, cluster.name(), &urls[1]).await?;
        fails(&first, cluster.name(), &hole, "timeout").await?;
    }
    let mut number = 1;
    let mut arrives = async || {
        number += 1;
        let address = format!("10.0.0.{number}");
        east.set_addresses(&["10.0.0.1", &address]).await?;
        west.imports(&[("east", &["10.0.0.1", &address])]).await.map(drop)
    };

    first.registry_program()?.signal(Signal::Stop)?;
    for cluster in clusters {
        uses(&first, cluster.name(), &urls[2]).await?;
    }
    arrives().await?;
    first.registry_program()?.signal(Signal::Continue)?;
    for cluster in clusters {
        uses(&first, cluster.name(), &urls[1]).await?;
    }
    arrives().await?;

    first.end_registry(Signal::Kill).await?;
    for cluster in clusters {
        uses(&first, cluster.name(), &urls[2]).await?;
        fails(&first, cluster.name(), &urls[1], "unreachable").await?;
    }
    arrives().await?;
    second.end_registry(Signal::Kill).await?;
    for cluster in clusters {
        uses_none(&first, cluster.name()).await?;
    }
    // Not both at once: of registries that share no store, each would know the clusters that came to it alone.
    second.start_registry().await?;
    for cluster in clusters {
        uses(&first, cluster.name(), &urls[2]).await?;
    }
    arrives().await?;
    first.start_registry().await?;
    for cluster in clusters {
        uses(&first, cluster.name(), &urls[1]).await?;
    }
    arrives().await?;
    Ok(())
}

/// It answers everything else, so that only what it holds tells.
#[tokio::test]
async fn a_registry_that_takes_a_cluster_and_none_of_its_exports_is_left_for_the_next_until_it_takes_them()
-> Result<()> {
    let pair = pair().await?;
    let namespace = pair.namespace("refuses").await?;
    let options = StackOptions::for_namespace(namespace.name());
    let mut first = Stack::start_without_controllers(options.clone()).await?;
    let second = Stack::start_without_controllers(options).await?;
    let relay = Relay::start(first.registry().grpc).await?;
    relay.refuse_syncs(true);
    let urls = [relay.url(), second.url()];
    *first.registry_urls() = urls.to_vec();
    first.prepare(&pair.east).await?;
    let east = Place::new(pair.east.client(), namespace.name(), "cart");
    east.export(&HTTP, &["10.0.0.1"]).await?;
    first.start_controller(&pair.east, "east").await?;
    uses(&first, "east", &urls[1]).await?;
    east.says(&READY).await?;
    east.imports(&[("east", &["10.0.0.1"])]).await?;
    logged(&first, "east", "no syncs today").await?;
    let told = second.rest("clusters/east").await?.to_string();
    ensure!(told.contains("LEASE_STATE_ACTIVE"), "{told}");

    relay.refuse_syncs(false);
    uses(&first, "east", &urls[0]).await?;
    east.set_addresses(&["10.0.0.1", "10.0.0.2"]).await?;
    east.imports(&[("east", &["10.0.0.1", "10.0.0.2"])]).await?;
    east.says(&READY).await?;
    let log = first.controller("east")?.program.log();
    let said = log.lines().filter(|line| line.contains("the registry cannot be used")).count();
    ensure!(said == 1, "said {said} times: {log}");
    Ok(())
}

/// O58, faults 19 and 20: nothing but the files changes, and what is wrong is named.
#[tokio::test]
async fn a_controller_reaches_its_registry_over_tls_with_files_that_change() -> Result<()> {
    let pair = pair().await?;
    let namespace = pair.namespace("tls").await?;
    let (ca, other) = (Ca::new("ca"), Ca::new("other"));
    let files = Files::new(&format!("{}-files", namespace.name()))?;
    files.write("registry", &ca.server(1), &ca.pem())?;
    let mut options = StackOptions::for_namespace(namespace.name());
    options.registry_flags = files.flags("registry", ["tls-cert-file", "tls-key-file", "tls-client-ca-file"]);
    let mut stack = Stack::start_without_controllers(options).await?;
    let url = format!("https://localhost:{}", stack.registry().grpc.port());
    *stack.registry_urls() = vec![url.clone()];
    let member =
        |cluster: &str| ca.issue(&[&format!("URI:spiffe://{}/cluster/{cluster}", namespace.name())], GOOD, 2);

    // East believes another CA, west shows the certificate of east.
    files.write("east", &member("east"), &other.pem())?;
    files.write("west", &member("east"), &ca.pem())?;
    for cluster in [&pair.east, &pair.west] {
        let names = ["registry-tls-cert-file", "registry-tls-key-file", "registry-tls-ca-file"];
        *stack.controller_flags() = files.flags(cluster.name(), names);
        stack.start_controllers(&[cluster]).await?;
    }
    let [east, west] = pair.clients().map(|client| Place::new(client, namespace.name(), "cart"));
    east.export(&HTTP, &["10.0.0.1"]).await?;
    west.export(&HTTP, &["10.1.0.1"]).await?;
    fails(&stack, "east", &url, "unknown_ca").await?;
    fails(&stack, "west", &url, "denied").await?;
    wait_for("what is wrong with west's certificate in its export", async || {
        let told = west.message(CONDITION_READY).await?;
        ensure!(told.contains("denies it") && told.contains("west"), "{told}");
        Ok(())
    })
    .await?;

    files.write("east", &member("east"), &ca.pem())?;
    files.write("west", &member("west"), &ca.pem())?;
    let both: [(&str, &[&str]); 2] = [("east", &["10.0.0.1"]), ("west", &["10.1.0.1"])];
    for place in [&east, &west] {
        place.says(&READY).await?;
        place.imports(&both).await?;
    }

    // All have new certificates of another CA, and only new connections are made with them.
    let bundle = format!("{}{}", ca.pem(), other.pem());
    files.write("registry", &ca.server(1), &bundle)?;
    for cluster in ["east", "west"] {
        let issued = other.issue(&[&format!("{cluster}.{}", namespace.name())], GOOD, 3);
        files.write(cluster, &issued, &bundle)?;
        logged(&stack, cluster, "serial=03").await?;
    }
    files.write("registry", &other.server(4), &other.pem())?;
    stack.end_registry(Signal::Kill).await?;
    stack.start_registry().await?;
    for cluster in ["east", "west"] {
        uses(&stack, cluster, &url).await?;
    }
    east.set_addresses(&["10.0.0.1", "10.0.0.2"]).await?;
    west.imports(&[("east", &["10.0.0.1", "10.0.0.2"]), ("west", &["10.1.0.1"])]).await?;
    for place in [&east, &west] {
        place.says(&READY).await?;
    }
    Ok(())
}

/// A peer that takes connections and never answers.
async fn black_hole() -> Result<(String, tokio_util::task::AbortOnDropHandle<()>)> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", listener.local_addr()?);
    let taking = tokio::spawn(async move {
        let mut taken = Vec::new();
        while let Ok((stream, _)) = listener.accept().await {
            taken.push(stream);
        }
    });
    Ok((url, tokio_util::task::AbortOnDropHandle::new(taking)))
}

/// Waits until a controller is registered at this URL and at no other.
async fn uses(stack: &Stack, replica: &str, url: &str) -> Result<()> {
    wait_for(&format!("{replica} to use {url}"), async || {
        let lines = metric(stack, replica, "mcs_controller_registry_connected").await?;
        let used: Vec<_> = lines.iter().filter(|line| line.ends_with(" 1")).collect();
        ensure!(used.len() == 1 && used[0].contains(&format!("\"{url}\"")), "{lines:?}");
        Ok(())
    })
    .await
}

async fn uses_none(stack: &Stack, replica: &str) -> Result<()> {
    wait_for(&format!("{replica} to use no registry"), async || {
        let lines = metric(stack, replica, "mcs_controller_registry_connected").await?;
        ensure!(lines.iter().all(|line| line.ends_with(" 0")), "{lines:?}");
        Ok(())
    })
    .await
}

/// Waits until calls of a controller to this URL have failed for this reason.
async fn fails(stack: &Stack, replica: &str, url: &str, reason: &str) -> Result<()> {
    wait_for(&format!("{replica} to fail at {url}: {reason}"), async || {
        let lines = metric(stack, replica, "mcs_controller_registry_failures_total").await?;
        let label = format!("reason=\"{reason}\",url=\"{url}\"");
        let failed = |line: &String| line.contains(&label) && !line.ends_with(" 0");
        ensure!(lines.iter().any(failed), "{lines:?}");
        Ok(())
    })
    .await
}

async fn metric(stack: &Stack, replica: &str, name: &str) -> Result<Vec<String>> {
    let text = get(&format!("http://{}/metrics", stack.controller(replica)?.admin)).await?;
    let text = String::from_utf8(text.to_vec())?;
    Ok(text.lines().filter(|line| line.starts_with(name)).map(str::to_owned).collect())
}

async fn logged(stack: &Stack, replica: &str, text: &str) -> Result<()> {
    wait_for(&format!("{text} in the log of {replica}"), async || {
        let log = stack.controller(replica)?.program.log();
        ensure!(log.contains(text), "{}", stack.controller(replica)?.program.log_tail());
        Ok(())
    })
    .await
}

/// Certificates in a folder that goes with the test.
struct Files(tempfile::TempDir);

impl Files {
    fn new(prefix: &str) -> Result<Self> {
        Ok(Self(tempfile::Builder::new().prefix(prefix).tempdir()?))
    }

    /// Certificate, key and CA of one program; each file is swapped as a whole.
    fn write(&self, whose: &str, issued: &Issued, ca: &str) -> Result<()> {
        for (name, text) in [("crt", issued.cert.as_str()), ("key", &issued.key), ("ca", ca)] {
            let new = self.path(whose, "new");
            fs::write(&new, text)?;
            fs::rename(new, self.path(whose, name))?;
        }
        Ok(())
    }

    /// The flags of these names for certificate, key and CA.
    fn flags(&self, whose: &str, names: [&str; 3]) -> Vec<String> {
        let files = ["crt", "key", "ca"].map(|name| self.path(whose, name));
        names.iter().zip(files).map(|(flag, file)| format!("--{flag}={}", file.display())).collect()
    }

    fn path(&self, whose: &str, name: &str) -> PathBuf {
        self.0.path().join(format!("{whose}.{name}"))
    }
}
