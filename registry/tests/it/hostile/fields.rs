//! O60, O61: each hostile text in each field of each call, to a registry as it is shipped: refused by the field's name, or left out
//! with it; nothing is held of it afterwards, and no line of the log, no metric and no label has anything of it.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use mcs_core::version::{Sum, Version};
use mcs_proto::convert::{op, registration as register_request};
use mcs_proto::pb;
use mcs_proto::pb::imports_client::ImportsClient;
use mcs_proto::pb::members_client::MembersClient;
use mcs_proto::pb::op::Act;
use mcs_proto::pb::sync_request::Step;
use mcs_proto::status::CallFailed;
use tonic::transport::Channel;
use tonic::{Code, Status};

use super::texts::{TEXTS, is_plain, lengths};
use crate::started::{LIMIT, client, http, key, member, prod, put, registration};

/// What a field takes.
type Rule = fn(&str) -> bool;

#[tokio::test]
async fn hostile_texts_are_refused_by_their_fields_and_leave_no_trace() {
    let registry = Running::start().await;
    let before = registry.held().await;

    registry.refuses_in_registrations().await;
    registry.refuses_in_renewals_and_removals().await;
    registry.refuses_in_writes().await;
    registry.refuses_in_syncs().await;
    registry.refuses_in_reads().await;
    registry.refuses_in_exports().await;
    registry.leaves_out_endpoints().await;

    assert_eq!(registry.held().await, before);
    let (_, metrics) = http(registry.admin, "GET", "/metrics").await;
    assert!(metrics.contains("mcs_registry_clustersets 1\n"), "{metrics}");
    for line in metrics.lines().filter(|line| !line.starts_with('#')) {
        let closed = |c: char| c.is_ascii_alphanumeric() || "_:{}=\",./+- ".contains(c);
        assert!(line.chars().all(closed), "{line:?}");
        assert!(
            TEXTS.iter().all(|text| text.is_ascii() && text.len() < 4 || !line.contains(text)),
            "{line:?}"
        );
    }
    // The last call is logged after all others.
    let log = registry.log_until("the last one").await;
    assert!(log.len() > 2, "{log:?}");
    for line in log {
        assert!(is_plain(&line), "{line:?}");
        assert!(line.starts_with("20") && line.len() < 2_000, "{line:?}");
    }
}

/// What any text may be is kept as it is, and cannot leave its place.
#[tokio::test]
async fn the_value_of_an_annotation_is_any_text_and_stays_one() {
    let registry = Running::start().await;
    let texts: Vec<String> = all().collect();
    let annotations =
        texts.iter().enumerate().map(|(number, text)| (format!("example.com/{number}"), text.clone()));
    // 32 are the most.
    for (seq, some) in (10..).zip(annotations.collect::<Vec<_>>().chunks(30)) {
        let mut change = registry.put("cart");
        let Some(Act::Put(put)) = &mut change.act else { panic!("a put") };
        put.spec.as_mut().unwrap().annotations = some.iter().cloned().collect();
        let results = registry.write(seq, vec![change]).await;
        assert_eq!(results[0].refused, None);
        let (exports, _) = client(registry.grpc).list_exports(&prod(), false).await.unwrap();
        let held = exports.into_iter().find(|export| export.key == Some((&key("cart")).into())).unwrap();
        assert_eq!(held.spec.unwrap().annotations, some.iter().cloned().collect());
        let (_, listed) = http(registry.rest, "GET", "/v1/clustersets/prod/exports").await;
        assert!(!listed.trim_end().contains(|c: char| c < ' '), "{listed}");
        let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
        for (name, text) in some {
            assert_eq!(listed["exports"][0]["spec"]["annotations"][name], *text);
        }
    }
}

/// A cluster `east` that exports `cart`, and the calls of anyone.
struct Running {
    child: Child,
    grpc: SocketAddr,
    rest: SocketAddr,
    admin: SocketAddr,
    log: Arc<Mutex<Vec<String>>>,
    members: MembersClient<Channel>,
    imports: ImportsClient<Channel>,
}

impl Running {
    async fn start() -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mcs-registry"));
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("DYN_MCS_")) {
            command.env_remove(name);
        }
        let mut child = command
            .args(["--grpc-listen=127.0.0.1:0", "--rest-listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0"])
            .args(["--log-level=info,mcs_registry=trace,mcs_runtime=trace", "--max-writes-per-second=100000"])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
        let started = lines.by_ref().find(|line| line.contains("registry starts")).unwrap();
        let address = |name: &str| {
            let (_, rest) = started.split_once(&format!(" {name}=")).unwrap();
            rest.split(' ').next().unwrap().parse().unwrap()
        };
        let log = Arc::<Mutex<Vec<String>>>::default();
        let kept = Arc::clone(&log);
        std::thread::spawn(move || lines.for_each(|line| kept.lock().unwrap().push(line)));
        let grpc: SocketAddr = address("grpc");
        let channel = Channel::from_shared(format!("http://{grpc}")).unwrap().connect_lazy();
        let registry = Self {
            child,
            grpc,
            rest: address("rest"),
            admin: address("admin"),
            log,
            members: MembersClient::new(channel.clone()),
            imports: ImportsClient::new(channel),
        };
        registry.members.clone().register(registry.registration()).await.unwrap();
        assert_eq!(registry.write(2, vec![registry.put("cart")]).await[0].refused, None);
        registry
    }

    fn registration(&self) -> pb::RegisterRequest {
        let east = member("east", "u-1");
        register_request(&east, &registration(&east, Version::new(1, 1), Sum::EMPTY))
    }

    /// A put as a message.
    fn put(&self, name: &str) -> pb::Op {
        op(&put(name, 1)).remove(0)
    }

    async fn write(&self, seq: u64, ops: Vec<pb::Op>) -> Vec<pb::OpResult> {
        let request = pb::WriteRequest { ops, ..head(seq) };
        self.members.clone().write(tokio_stream::iter([request])).await.unwrap().into_inner().results
    }

    /// All that is held.
    async fn held(&self) -> (Vec<pb::Cluster>, Vec<pb::Export>, Vec<pb::Import>) {
        let client = client(self.grpc);
        let (mut clusters, _) = client.list_clusters(&prod()).await.unwrap();
        for cluster in &mut clusters {
            // Writes that change nothing are acts all the same.
            (cluster.version, cluster.lease) = (None, None);
        }
        let (exports, _) = client.list_exports(&prod(), true).await.unwrap();
        let (imports, _) = client.list_imports(&prod(), true).await.unwrap();
        (clusters, exports, imports)
    }

    /// The log, up to the line of a watch of this cluster.
    async fn log_until(&self, last: &str) -> Vec<String> {
        let last = last.replace(' ', "-");
        let request =
            pb::WatchRequest { clusterset: "prod".to_owned(), cluster: last.clone(), ..Default::default() };
        let _watch = self.imports.clone().watch(request).await.unwrap();
        let logged = async {
            loop {
                let log = self.log.lock().unwrap().clone();
                if log.iter().any(|line| line.contains(&last)) {
                    return log;
                }
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(LIMIT, logged).await.unwrap()
    }

    async fn refuses_in_registrations(&self) {
        type Set = fn(&mut pb::RegisterRequest, String);
        let fields: [(&str, Rule, Set); 6] = [
            ("clusterset", is_label, |request, text| request.clusterset = text),
            ("cluster", is_label, |request, text| request.cluster = text),
            ("uid", is_uid, |request, text| request.uid = text),
            ("region", is_label_value_or_empty, |request, text| request.region = text),
            ("instance", is_words, |request, text| request.instance = text),
            ("build", is_words, |request, text| request.build = text),
        ];
        for (field, rule, set) in fields {
            for text in all().filter(|text| !rule(text)) {
                let mut request = self.registration();
                set(&mut request, text.clone());
                assert_refused(field, &text, self.members.clone().register(request).await);
            }
        }
        for sum in lengths_of_sixteen() {
            let request = pb::RegisterRequest { sum, ..self.registration() };
            assert_refused("sum", "", self.members.clone().register(request).await);
        }
    }

    async fn refuses_in_renewals_and_removals(&self) {
        type Renew = fn(&mut pb::RenewRequest, String);
        let fields: [(&str, Rule, Renew); 5] = [
            ("clusterset", is_label, |request, text| request.clusterset = text),
            ("cluster", is_label, |request, text| request.cluster = text),
            ("uid", is_uid, |request, text| request.uid = text),
            ("heldImports.first[0].namespace", is_label, |request, text| {
                let key = pb::ServiceKey { namespace: text, name: "cart".to_owned() };
                request.held_imports = Some(pb::HeldImports { total: 1, first: vec![key] });
            }),
            ("refusedExports.first[0].name", is_label, |request, text| {
                let key = Some(pb::ServiceKey { namespace: "shop".to_owned(), name: text });
                let first = vec![pb::RefusedExport { key, ..Default::default() }];
                request.refused_exports = Some(pb::RefusedExports { total: 1, first });
            }),
        ];
        for (field, rule, set) in fields {
            for text in all().filter(|text| !rule(text)) {
                let pb::WriteRequest { clusterset, cluster, uid, version, .. } = head(2);
                let mut request = pb::RenewRequest {
                    clusterset,
                    cluster,
                    uid,
                    version,
                    sum: vec![0; 16],
                    held_imports: None,
                    refused_exports: None,
                };
                set(&mut request, text.clone());
                assert_refused(field, &text, self.members.clone().renew(request).await);
            }
        }
        type Remove = fn(&mut pb::RemoveClusterRequest, String);
        let fields: [(&str, Rule, Remove); 4] = [
            ("clusterset", is_label, |request, text| request.clusterset = text),
            ("cluster", is_label, |request, text| request.cluster = text),
            ("uid", |text| text.is_empty() || is_uid(text), |request, text| request.uid = text),
            ("only_uid", |text| text.is_empty() || is_uid(text), |request, text| request.only_uid = text),
        ];
        for (field, rule, set) in fields {
            for text in all().filter(|text| !rule(text)) {
                let pb::WriteRequest { clusterset, cluster, uid, .. } = head(2);
                let mut request = pb::RemoveClusterRequest {
                    clusterset,
                    cluster,
                    uid,
                    force: true,
                    only_uid: String::new(),
                };
                set(&mut request, text.clone());
                assert_refused(field, &text, self.members.clone().remove_cluster(request).await);
            }
        }
    }

    async fn refuses_in_writes(&self) {
        type Set = fn(&mut pb::WriteRequest, String);
        let fields: [(&str, Rule, Set); 3] = [
            ("clusterset", is_label, |request, text| request.clusterset = text),
            ("cluster", is_label, |request, text| request.cluster = text),
            ("uid", is_uid, |request, text| request.uid = text),
        ];
        for (field, rule, set) in fields {
            for text in all().filter(|text| !rule(text)) {
                let mut request = pb::WriteRequest { ops: vec![self.put("cart")], ..head(3) };
                set(&mut request, text.clone());
                let answer = self.members.clone().write(tokio_stream::iter([request])).await;
                assert_refused(field, &text, answer);
            }
        }
    }

    async fn refuses_in_syncs(&self) {
        type Set = fn(&mut pb::SyncBegin, String);
        let fields: [(&str, Rule, Set); 3] = [
            ("clusterset", is_label, |begin, text| begin.clusterset = text),
            ("cluster", is_label, |begin, text| begin.cluster = text),
            ("uid", is_uid, |begin, text| begin.uid = text),
        ];
        let begin = || {
            let pb::WriteRequest { clusterset, cluster, uid, version, .. } = head(4);
            pb::SyncBegin { clusterset, cluster, uid, version }
        };
        for (field, rule, set) in fields {
            for text in all().filter(|text| !rule(text)) {
                let mut begin = begin();
                set(&mut begin, text.clone());
                assert_refused(field, &text, self.sync([Step::Begin(begin)]).await);
            }
        }
        for text in all().filter(|text| !is_label(text)) {
            let keys = [("namespace", &text, &key_text()), ("name", &key_text(), &text)];
            for (field, namespace, name) in keys {
                let key = pb::ServiceKey { namespace: namespace.clone(), name: name.clone() };
                let names = vec![pb::SyncName { key: Some(key), leaf: vec![0; 16] }];
                let steps = [Step::Begin(begin()), Step::Names(pb::SyncNames { names })];
                assert_refused(field, &text, self.sync(steps).await);
            }
        }
    }

    /// Follows a sync to its end.
    async fn sync(&self, steps: impl IntoIterator<Item = Step>) -> Result<(), Status> {
        let steps: Vec<_> = steps.into_iter().map(|step| pb::SyncRequest { step: Some(step) }).collect();
        let mut answers = self.members.clone().sync(tokio_stream::iter(steps)).await?.into_inner();
        while answers.message().await?.is_some() {}
        Ok(())
    }

    async fn refuses_in_reads(&self) {
        let prod = || "prod".to_owned();
        let mut imports = self.imports.clone();
        for text in all().filter(|text| !is_label(text)) {
            let of_set = pb::WatchRequest { clusterset: text.clone(), cluster: prod(), ..Default::default() };
            assert_refused("clusterset", &text, imports.watch(of_set).await);
            let by_one = pb::WatchRequest { clusterset: prod(), cluster: text.clone(), ..Default::default() };
            assert_refused("cluster", &text, imports.watch(by_one).await);
            let clusters = pb::ListClustersRequest { clusterset: text.clone(), ..Default::default() };
            assert_refused("clusterset", &text, imports.list_clusters(clusters).await);
            let exports = pb::ListExportsRequest { clusterset: text.clone(), ..Default::default() };
            assert_refused("clusterset", &text, imports.list_exports(exports).await);
            let of_imports = pb::ListImportsRequest { clusterset: text.clone(), ..Default::default() };
            assert_refused("clusterset", &text, imports.list_imports(of_imports).await);
            if !text.is_empty() {
                let of_one = pb::ListExportsRequest {
                    clusterset: prod(),
                    cluster: text.clone(),
                    ..Default::default()
                };
                assert_refused("cluster", &text, imports.list_exports(of_one).await);
            }
        }
        // A token is a key and a count, as the list gives it.
        let counts = ["", "+1", "-1", "1 ", "99999999999999999999"].map(|count| format!("east~{count}"));
        let keys = all().map(|text| format!("{text}~0")).filter(|token| !is_label(&token[..token.len() - 2]));
        for token in all().filter(|text| !text.is_empty() && text != "a~1").chain(counts).chain(keys) {
            let page_token = token.clone();
            let clusters = pb::ListClustersRequest { clusterset: prod(), page_token, ..Default::default() };
            assert_refused("pageToken", &token, imports.list_clusters(clusters).await);
            let page_token = format!("shop/{token}");
            let of_imports = pb::ListImportsRequest { clusterset: prod(), page_token, ..Default::default() };
            assert_refused("pageToken", &token, imports.list_imports(of_imports).await);
            let page_token = format!("shop/cart/{token}");
            let exports = pb::ListExportsRequest { clusterset: prod(), page_token, ..Default::default() };
            assert_refused("pageToken", &token, imports.list_exports(exports).await);
        }
        for epoch in lengths_of_sixteen().filter(|epoch| !epoch.is_empty()) {
            let watch = pb::WatchRequest {
                clusterset: prod(),
                cluster: prod(),
                epoch,
                revision: 1,
                ..Default::default()
            };
            assert_refused("epoch", "", imports.watch(watch).await);
        }
        let watch = || pb::WatchRequest { clusterset: prod(), cluster: prod(), ..Default::default() };
        for text in all().filter(|text| !is_words(text)) {
            let by_build = pb::WatchRequest { build: text.clone(), ..watch() };
            assert_refused("build", &text, imports.watch(by_build).await);
        }
        type Set = fn(&mut pb::PartSet, String);
        let fields: [(&str, Rule, Set); 2] = [
            ("since[1].cluster", is_label, |set, text| set.cluster = text),
            ("since[1].uid", is_uid, |set, text| set.uid = text),
        ];
        let set = |cluster: &str| pb::PartSet {
            cluster: cluster.to_owned(),
            uid: "u-1".to_owned(),
            sum: vec![0; 16],
        };
        for (field, rule, put) in fields {
            for text in all().filter(|text| !rule(text)) {
                let mut wrong = set("west");
                put(&mut wrong, text.clone());
                let since = vec![set("east"), wrong];
                assert_refused(field, &text, imports.watch(pb::WatchRequest { since, ..watch() }).await);
            }
        }
        for sum in lengths_of_sixteen() {
            let since = vec![pb::PartSet { sum, ..set("east") }];
            let refused = imports.watch(pb::WatchRequest { since, ..watch() }).await;
            assert_refused("since[0].sum", "", refused);
        }
    }

    /// Each text in a field of a put: refused by itself, with the field.
    async fn refuses_in_exports(&self) {
        type Set = fn(&mut pb::Op, String);
        let fields: [(&str, Rule, Set); 8] = [
            ("namespace", is_label, |op, text| op.key.as_mut().unwrap().namespace = text),
            ("name", is_label, |op, text| op.key.as_mut().unwrap().name = text),
            ("ports[0].name", |text| text.is_empty() || is_label(text), |op, text| port_of(op).name = text),
            ("ports[0].appProtocol", is_qualified, |op, text| port_of(op).app_protocol = Some(text)),
            ("trafficDistribution", |_| false, |op, text| spec_of(op).traffic_distribution = Some(text)),
            ("exportedLabels", is_qualified, |op, text| {
                spec_of(op).labels.insert(text, String::new());
            }),
            ("exportedLabels[a]", is_label_value_or_empty, |op, text| {
                spec_of(op).labels.insert("a".to_owned(), text);
            }),
            ("exportedAnnotations", is_qualified, |op, text| {
                spec_of(op).annotations.insert(text, String::new());
            }),
        ];
        for (seq, (field, rule, set)) in (20..).zip(fields) {
            let texts: Vec<String> = all().filter(|text| !rule(text)).collect();
            let ops = texts.iter().map(|text| {
                let mut op = self.put("hostile");
                set(&mut op, text.clone());
                op
            });
            let results = self.write(seq, ops.collect()).await;
            assert_eq!(results.len(), texts.len());
            for (text, result) in texts.iter().zip(results) {
                let refused = result.refused.unwrap_or_else(|| panic!("{field} {text:?} is taken"));
                assert_eq!(refused.field, field, "{text:?}: {refused:?}");
                assert!(is_plain(&refused.problem) && refused.problem.len() < 1_000, "{refused:?}");
            }
        }
    }

    /// Each text in a field of an endpoint: the endpoint is left out, with the field.
    async fn leaves_out_endpoints(&self) {
        type Set = fn(&mut pb::EndpointGroup, String);
        let fields: [(&str, Rule, Set); 6] = [
            ("address", |_| false, |group, text| group.endpoints[0].address = text),
            ("hostname", is_label, |group, text| group.endpoints[0].hostname = Some(text)),
            ("zone", is_label_value_or_empty, |group, text| group.endpoints[0].zone = Some(text)),
            ("nodeName", is_subdomain, |group, text| group.endpoints[0].node_name = Some(text)),
            (
                "ports[0].name",
                |text| text.is_empty() || is_label(text),
                |group, text| {
                    group.ports[0].name = text;
                },
            ),
            ("ports[0].appProtocol", is_qualified, |group, text| group.ports[0].app_protocol = Some(text)),
        ];
        for (seq, (field, rule, set)) in (40..).zip(fields) {
            let texts: Vec<String> = all().filter(|text| !rule(text)).collect();
            for (text, seq) in texts.iter().zip((seq * 1_000)..) {
                let mut op = self.put("hostile");
                let Some(Act::Put(put)) = &mut op.act else { panic!("a put") };
                set(&mut put.endpoints.as_mut().unwrap().groups[0], text.clone());
                let delete = pb::Op { act: Some(Act::Delete(pb::DeleteExport {})), ..self.put("hostile") };
                let results = self.write(seq, vec![op]).await;
                let [dropped] = results[0].dropped.as_slice() else {
                    panic!("{field} {text:?}: {results:?}")
                };
                assert_eq!(dropped.field, field, "{text:?}: {dropped:?}");
                for told in [&dropped.address, &dropped.problem] {
                    assert!(is_plain(told) && told.len() < 1_000, "{dropped:?}");
                }
                assert_eq!(self.write(seq, vec![delete]).await[0].refused, None);
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn all() -> impl Iterator<Item = String> {
    TEXTS.iter().map(|text| (*text).to_owned()).chain(lengths())
}

/// Lengths of bytes that must be 16.
fn lengths_of_sixteen() -> impl Iterator<Item = Vec<u8>> {
    [0, 1, 15, 17, 32, 300].into_iter().map(|length| vec![0; length])
}

fn key_text() -> String {
    "shop".to_owned()
}

/// Who writes, and the version.
fn head(seq: u64) -> pb::WriteRequest {
    pb::WriteRequest {
        clusterset: "prod".to_owned(),
        cluster: "east".to_owned(),
        uid: "u-1".to_owned(),
        version: Some(pb::Version { term: 1, seq }),
        ops: Vec::new(),
    }
}

fn spec_of(op: &mut pb::Op) -> &mut pb::ExportSpec {
    let Some(Act::Put(put)) = &mut op.act else { panic!("a put") };
    put.spec.as_mut().unwrap()
}

fn port_of(op: &mut pb::Op) -> &mut pb::Port {
    &mut spec_of(op).ports[0]
}

fn assert_refused<T>(field: &str, text: &str, answer: Result<T, Status>) {
    let Err(status) = answer else { panic!("{field} {text:?} is taken") };
    assert_eq!(status.code(), Code::InvalidArgument, "{field} {text:?}: {status:?}");
    assert!(is_plain(status.message()) && status.message().len() < 1_000, "{status:?}");
    let CallFailed::Invalid { field: told, .. } = CallFailed::from(status) else {
        panic!("{field} {text:?}")
    };
    assert_eq!(told, field, "{text:?}");
}

// The rules of Kubernetes, as its documentation has them.

fn is_label(text: &str) -> bool {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    (1..=63).contains(&text.len())
        && text.chars().all(inner)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

fn is_subdomain(text: &str) -> bool {
    // Its parts may be longer than those of a DNS name.
    let part = |part: &str| is_label(&part.chars().take(60).collect::<String>());
    text.len() <= 253 && text.split('.').all(part)
}

fn is_label_value_or_empty(text: &str) -> bool {
    let edge = |c: Option<char>| c.is_none_or(|c| c.is_ascii_alphanumeric());
    text.len() <= 63
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
        && edge(text.chars().next())
        && edge(text.chars().last())
}

fn is_qualified(text: &str) -> bool {
    match text.split_once('/') {
        None => !text.is_empty() && is_label_value_or_empty(text),
        Some((prefix, name)) => is_subdomain(prefix) && !name.is_empty() && is_label_value_or_empty(name),
    }
}

fn is_uid(text: &str) -> bool {
    (1..=63).contains(&text.len()) && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
}

/// What only people read.
fn is_words(text: &str) -> bool {
    text.len() <= 253 && text.chars().all(|c| (' '..='~').contains(&c))
}
