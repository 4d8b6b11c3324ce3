//! Phase 2.

use std::{collections::BTreeMap, fs};

use anyhow::{Context, Result, bail, ensure};
use kube::ResourceExt;
use serde_json::json;

use super::{EU, Scene, check, ended, has_finding, metric, pods_of, restart_registry, restarts};
use crate::{
    assets::workspace_root,
    kind::{
        LONG,
        certificates::{Authority, Pair},
        charts::{CLUSTERSET, REGISTRY, SYSTEM, install_controller, install_registry},
        images::{MCS, TAG},
        member::Member,
        network::each,
        shop::{GREETER, SHOP, Traffic, imported, names, scale},
        witness::Witness,
    },
    wait_at_most,
};

/// Where a program of ours tells its metrics, and how these begin.
const PROGRAMS: [(&str, u16, &str); 2] =
    [(REGISTRY, 9091, "mcs_registry"), ("mcs-controller", 8080, "mcs_controller")];
/// The flags of `mcs-admin` in the Pod of a controller, as helm prints them.
const FLAGS: [&str; 3] = [
    "--registry-tls-ca-file=/etc/mcs/registry-ca/ca.crt",
    "--registry-tls-cert-file=/etc/mcs/registry-tls/tls.crt",
    "--registry-tls-key-file=/etc/mcs/registry-tls/tls.key",
];

pub(super) async fn run(scene: &Scene<'_>) -> Result<String> {
    let Scene { east, west, .. } = scene;
    let first = Authority::new("first authority")?;
    let url = format!("https://{EU}");
    scene.step("making Secrets of a private CA, as docs/install.md says", make(scene, &first)).await?;
    let values = ["registry.tls.secretName=registry-certificate", "registry.tls.clientCaSecretName=clients"];
    scene.step("installing a registry in east", install_registry(east, &values)).await?;
    let urls = format!("controller.registryUrls={{{url}}}");
    let values = [
        urls.as_str(),
        "controller.registryTlsCa.configMapName=authority",
        "controller.registryTls.secretName=controller-certificate",
    ];
    let installing = each(scene.members, |member| install_controller(member, &values));
    scene.step("installing a controller in each cluster", installing).await?;
    let checking = each(scene.members, |member| check(scene.members, member, &url, &FLAGS));
    let found = scene.step("mcs-admin check, in each cluster", checking).await?;
    scene.screen.quote(&found[0])?;
    scene.step("without a certificate nobody is let in", is_refused(west, &url)).await?;

    scene.step("exporting 2 servers of east", scene.serve(east, 2)).await?;
    let importing = imported(west, SHOP, GREETER, 2, &["east"]);
    let address = scene.step("waiting for the import in west", importing).await?;
    let client = Traffic::start(west, SHOP, "client", format!("{address}:8080"));
    let mut client = scene.step("sending from west to the clusterset IP", client).await?;
    client.begin().await?;
    let witness = Witness::start(west).await?;
    let started = each(scene.members, starts).await?;

    let second = Authority::new("second authority")?;
    let both = first.pem() + &second.pem();
    scene.step("having both sides trust a second CA as well", rotate(scene, Trust(&both))).await?;
    scene.step("giving both sides certificates of the second CA", rotate(scene, Show(&second))).await?;
    scene.step("having both sides trust the second CA only", rotate(scene, Trust(&second.pem()))).await?;
    // Connections outlive the certificates that they were made with. This one is made anew, to the registry that has run
    // all the time, with the files that the Pod has now.
    let checking = each(scene.members, |member| check(scene.members, member, &url, &FLAGS));
    scene.step("mcs-admin check, in each cluster, by the second CA alone", checking).await?;
    let asking = is_believed_no_more(west, &url, &first, &second);
    scene.step("who shows a certificate of the first CA is not let in", asking).await?;
    let now = each(scene.members, starts).await?;
    ensure!(now == started, "Pods of ours were started again: {started:?} became {now:?}");
    scene.step("killing the registry, and waiting until it is back", restart_registry(east)).await?;
    scene.step("scaling to 3 servers", scale(east, SHOP, GREETER, 3)).await?;
    let servers = names(&[(east, 3)]).await?;
    scene.step("the third is imported", imported(west, SHOP, GREETER, 3, &["east"])).await?;
    scene.step("all three answer", client.is_answered_by(&servers)).await?;
    let checking = each(scene.members, |member| check(scene.members, member, &url, &FLAGS));
    scene.step("mcs-admin check, in each cluster", checking).await?;
    witness.nothing_went().await?;
    let answered = client.without_failure(0).await?;
    Ok(format!("{answered} requests while certificates and CA were replaced, none failed"))
}

/// The Secrets and ConfigMaps, by the commands of docs/install.md.
async fn make(scene: &Scene<'_>, authority: &Authority) -> Result<()> {
    let folder = workspace_root().join("target/e2e/certificates");
    fs::create_dir_all(&folder)?;
    let write = |name: &str, text: &str| -> Result<String> {
        let path = folder.join(name);
        fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
        Ok(path.display().to_string())
    };
    let ca = format!("--from-file=ca.crt={}", write("ca.crt", &authority.pem())?);
    let pair = |name: &str, pair: &Pair| -> Result<[String; 2]> {
        let certificate = write(&format!("{name}.crt"), &pair.certificate)?;
        let key = write(&format!("{name}.key"), &pair.key)?;
        Ok([format!("--cert={certificate}"), format!("--key={key}")])
    };
    for member in scene.members {
        member.kubectl(&["create", "namespace", SYSTEM]).await?;
        let create = ["-n", SYSTEM, "create"];
        let [certificate, key] = pair(member.name(), &of_cluster(authority, member)?)?;
        let secret = ["secret", "tls", "controller-certificate", certificate.as_str(), key.as_str()];
        member.kubectl(&[&create[..], &["configmap", "authority", ca.as_str()]].concat()).await?;
        member.kubectl(&[&create[..], &secret].concat()).await?;
    }
    let create = ["-n", SYSTEM, "create", "secret"];
    let [certificate, key] = pair("registry", &of_registry(authority)?)?;
    let secret = ["tls", "registry-certificate", certificate.as_str(), key.as_str()];
    scene.east.kubectl(&[&create[..], &secret].concat()).await?;
    scene.east.kubectl(&[&create[..], &["generic", "clients", ca.as_str()]].concat()).await.map(drop)
}

fn of_cluster(authority: &Authority, member: &Member) -> Result<Pair> {
    authority.client(&format!("spiffe://{CLUSTERSET}/cluster/{}", member.name()))
}

fn of_registry(authority: &Authority) -> Result<Pair> {
    let name = EU.split(':').next().unwrap_or_default();
    authority.server(name)
}

async fn is_refused(member: &Member, url: &str) -> Result<()> {
    let url = format!("--registry-url={url}");
    let asked = ["-n", SYSTEM, "exec", "deploy/mcs-controller", "--", "/mcs-admin", "check", &url, FLAGS[0]];
    match member.kubectl(&asked).await {
        Ok(found) => bail!("it is let in: {found}"),
        Err(error) => {
            let error = format!("{error:#}");
            ensure!(has_finding(&error, &["failed", "connection"]), "it fails otherwise: {error}");
            Ok(())
        }
    }
}

/// Pods of ours in a cluster, and how often each was started again.
async fn starts(member: &Member) -> Result<BTreeMap<String, i32>> {
    let mut starts = BTreeMap::new();
    for (program, ..) in PROGRAMS {
        for pod in pods_of(member, SYSTEM, program).await? {
            starts.insert(pod.name_any(), restarts(&[pod]));
        }
    }
    Ok(starts)
}

/// With the CA that the registry's certificate is of, and a certificate of the other one, which would be let in before.
async fn is_believed_no_more(
    member: &Member,
    url: &str,
    authority: &Authority,
    registry: &Authority,
) -> Result<()> {
    const POD: &str = "first-authority";
    let pair = authority.client(&format!("spiffe://{CLUSTERSET}/admin"))?;
    let metadata = json!({ "namespace": SYSTEM, "name": POD });
    let objects = [
        json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": metadata,
            "stringData": { "ca.crt": registry.pem(), "tls.crt": pair.certificate, "tls.key": pair.key },
        }),
        json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": metadata,
            "spec": {
                "restartPolicy": "Never",
                "containers": [{
                    "name": "main", "image": format!("{MCS}:{TAG}"),
                    "command": [
                        "/mcs-admin", "check", format!("--registry-url={url}"),
                        "--registry-tls-ca-file=/shown/ca.crt", "--registry-tls-cert-file=/shown/tls.crt",
                        "--registry-tls-key-file=/shown/tls.key",
                    ],
                    "volumeMounts": [{ "name": "shown", "mountPath": "/shown" }],
                }],
                "volumes": [{ "name": "shown", "secret": { "secretName": POD } }],
            },
        }),
    ];
    member.apply(&objects).await?;
    let (is_good, said) = ended(member, SYSTEM, POD).await?;
    ensure!(!is_good, "it is let in: {said}");
    ensure!(has_finding(&said, &["failed", "connection"]), "it fails otherwise: {said}");
    Ok(())
}

/// What is replaced on both sides.
enum Replaced<'a> {
    Trust(&'a str),
    Show(&'a Authority),
}
use Replaced::{Show, Trust};

/// Replaces it, and waits until every Pod uses what is new.
async fn rotate(scene: &Scene<'_>, replaced: Replaced<'_>) -> Result<()> {
    let mut before = Vec::new();
    for member in scene.members {
        for (program, port, prefix) in PROGRAMS {
            for pod in pods_of(member, SYSTEM, program).await? {
                let reloads = reloads(member, &pod, port, prefix).await?;
                before.push((member, pod, port, prefix, reloads));
            }
        }
    }
    ensure!(before.len() == 7, "{} Pods of ours, in place of a registry and six controllers", before.len());
    for member in scene.members {
        replace(member, scene.east, &replaced).await?;
    }
    for (member, pod, ..) in &before {
        // The kubelet looks at the volumes of a Pod about once a minute, and whenever the Pod changes.
        let annotate = [
            "-n",
            SYSTEM,
            "annotate",
            "pod",
            &pod.name_any(),
            "--overwrite",
            &format!("e2e={}", rand::random::<u32>()),
        ];
        member.kubectl(&annotate).await?;
    }
    for (member, pod, port, prefix, before) in before {
        let what = format!("{} in {} to use the new files", pod.name_any(), member.name());
        wait_at_most(LONG, &what, async || {
            let now = reloads(member, &pod, port, prefix).await?;
            ensure!(now > before, "{now} changes were used");
            anyhow::Ok(())
        })
        .await?;
    }
    Ok(())
}

async fn reloads(
    member: &Member,
    pod: &k8s_openapi::api::core::v1::Pod,
    port: u16,
    prefix: &str,
) -> Result<f64> {
    metric(member, pod, port, &format!("{prefix}_tls_reloads_total"), &["outcome=\"used\""]).await
}

async fn replace(member: &Member, east: &Member, replaced: &Replaced<'_>) -> Result<()> {
    let object = |kind: &str, name: &str, field: &str, content: serde_json::Value| {
        json!({
            "apiVersion": "v1", "kind": kind, "metadata": { "namespace": SYSTEM, "name": name }, field: content,
        })
    };
    let secret = |name: &str, pair: Pair| {
        object("Secret", name, "stringData", json!({ "tls.crt": pair.certificate, "tls.key": pair.key }))
    };
    let is_east = member.plan == east.plan;
    let mut objects = Vec::new();
    match replaced {
        Trust(authorities) => {
            let content = json!({ "ca.crt": authorities });
            objects.push(object("ConfigMap", "authority", "data", content.clone()));
            if is_east {
                objects.push(object("Secret", "clients", "stringData", content));
            }
        }
        Show(authority) => {
            objects.push(secret("controller-certificate", of_cluster(authority, member)?));
            if is_east {
                objects.push(secret("registry-certificate", of_registry(authority)?));
            }
        }
    }
    // The type of a Secret stays what it is.
    for object in &mut objects {
        let type_ = match object["metadata"]["name"].as_str() {
            Some("controller-certificate" | "registry-certificate") => "kubernetes.io/tls",
            Some("clients") => "Opaque",
            _ => continue,
        };
        object["type"] = type_.into();
    }
    member.apply(&objects).await
}
