//! The address families that the cluster gives Services, which decide what an import may ask for.
//!
//! The API server knows, and a dry run of a Service that takes all it can makes it say. It is asked once at the start.
//! A namespace may refuse: it is missing, ends, is full, or this controller may make nothing in it. Where all do, the
//! first import asks in its own namespace, into which its Service goes anyway.
//!
//! Rejected: taking both families to be served where nobody says. In a cluster with one, every import with two is then
//! refused for as long as the program runs.

use crate::writes::{LIMIT, WriteFailed};
use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use kube::Client;
use kube::api::{Api, ObjectMeta, PostParams};
use mcs_core::ids::Namespace;
use mcs_core::model::IpFamily;
use std::sync::OnceLock;
use tracing::{debug, info};

/// The families, once they are known.
#[derive(Debug, Default)]
pub(crate) struct Families(OnceLock<Vec<IpFamily>>);

impl Families {
    /// The families, the primary one first; none while nobody has said.
    pub(crate) fn known(&self) -> Option<Vec<IpFamily>> {
        self.0.get().cloned()
    }

    /// Asks each of `namespaces` until one says.
    ///
    /// # Errors
    /// The API server does not answer, or is busy: another may not be asked in its place.
    pub(crate) async fn learn(&self, client: &Client, namespaces: &[String]) -> kube::Result<()> {
        for namespace in namespaces {
            match probe(client, namespace).await {
                Ok(families) => {
                    self.set(families);
                    return Ok(());
                }
                Err(kube::Error::Api(status)) if status.code < 500 && status.code != 429 => {
                    debug!(
                        namespace,
                        answer = status.message,
                        "cannot be asked for the cluster's IP families"
                    );
                }
                Err(error) => return Err(error),
            }
        }
        info!("no namespace tells the cluster's IP families yet, the first import asks again");
        Ok(())
    }

    /// The families as `namespace` says, which is remembered.
    ///
    /// # Errors
    /// It does not say.
    pub(crate) async fn ask(
        &self,
        client: &Client,
        namespace: &Namespace,
    ) -> Result<Vec<IpFamily>, WriteFailed> {
        let answer = tokio::time::timeout(LIMIT, probe(client, namespace.as_str())).await;
        let families = answer.map_err(|_| WriteFailed::TimedOut)??;
        self.set(families.clone());
        Ok(families)
    }

    fn set(&self, families: Vec<IpFamily>) {
        // Whoever asked at the same time was told the same.
        if self.0.set(families.clone()).is_ok() {
            info!(?families, "the cluster's IP families known");
        }
    }
}

async fn probe(client: &Client, namespace: &str) -> kube::Result<Vec<IpFamily>> {
    let probe = Service {
        metadata: ObjectMeta { generate_name: Some("mcs-probe-".to_owned()), ..ObjectMeta::default() },
        spec: Some(ServiceSpec {
            ip_family_policy: Some("PreferDualStack".to_owned()),
            ports: Some(vec![ServicePort { port: 1, ..ServicePort::default() }]),
            ..ServiceSpec::default()
        }),
        ..Service::default()
    };
    let params = PostParams { dry_run: true, ..PostParams::default() };
    let made = Api::<Service>::namespaced(client.clone(), namespace).create(&params, &probe).await?;
    let families = made.spec.and_then(|spec| spec.ip_families).unwrap_or_default();
    Ok(families.iter().filter_map(|family| IpFamily::parse(family)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use mcs_runtime::kube::testing::api_server;
    use serde_json::json;

    #[tokio::test(start_paused = true)]
    async fn a_namespace_that_refuses_leaves_the_question_to_the_next_and_at_last_to_an_import() {
        let (mut api, client) = api_server();
        let families = Families::default();
        let names = ["shop", "default"].map(str::to_owned);
        let learn = async { families.learn(&client, &names).await.map_err(|error| error.to_string()) };
        let refuse = async {
            for path in ["/api/v1/namespaces/shop/services", "/api/v1/namespaces/default/services"] {
                let asked = api.asked().await;
                assert_eq!((asked.path.as_str(), asked.query("dryRun")), (path, Some("All")));
                asked.refused(403, None);
            }
        };
        assert_eq!((tokio::join!(learn, refuse).0, families.known()), (Ok(()), None));

        let shop = Namespace::new("shop").expect("a name");
        let ask = async { families.ask(&client, &shop).await.map_err(|error| error.to_string()) };
        let tell = async { api.asked().await.json(201, &json!({"spec": {"ipFamilies": ["IPv6"]}})) };
        let v6 = vec![IpFamily::V6];
        assert_eq!((tokio::join!(ask, tell).0, families.known()), (Ok(v6.clone()), Some(v6)));
    }

    #[tokio::test(start_paused = true)]
    async fn an_api_server_that_is_busy_is_not_taken_for_a_namespace_that_refuses() {
        for code in [429, 503] {
            let (mut api, client) = api_server();
            let families = Families::default();
            let names = ["default".to_owned()];
            let learn = async { families.learn(&client, &names).await.is_err() };
            let refuse = async { api.asked().await.refused(code, None) };
            assert_eq!((tokio::join!(learn, refuse).0, families.known()), (true, None), "{code}");
        }
    }
}
