//! Ordinary clients, who must notice nothing of an attack.

use crate::events::Events;
use crate::program::Program;
use crate::service::{ask, registration};
use mcs_runtime::testing::witness::Witness;
use serde_json::{Value, json};

/// A relay that registers, a router that watches and one that lists, a probe, and Prometheus.
pub(crate) struct Client {
    watch: Events,
    round: usize,
}

impl Client {
    /// Watches.
    pub(crate) async fn new(program: &Program) -> Self {
        let mut watch = Events::open(program.address, "/pools/watch").await;
        watch.named("resync").await;
        Self { watch, round: 0 }
    }
}

impl Witness<Program> for Client {
    /// A registration that the watch tells and the list has, and what probes and Prometheus ask for.
    async fn round(&mut self, program: &Program) {
        self.round += 1;
        let (address, model) = (program.address, json!(format!("witness-{}", self.round)));
        let mut body = registration("witness");
        body["model"] = model.clone();
        assert_eq!(ask(address, "POST", "/pools", &body.to_string()).await.0, 200);
        loop {
            // Lists come anew when completeness changes, and others may register as well.
            let (event, data) = self.watch.next().await.expect("the watch has ended");
            let pools =
                if event == "resync" { data["pools"].as_array().unwrap().clone() } else { vec![data] };
            if pools.iter().any(|pool| is_witness(pool) && pool["model"] == model) {
                break;
            }
        }
        let (status, list) = ask(address, "GET", "/pools", "").await;
        let list: Value = serde_json::from_str(&list).unwrap();
        let listed =
            list["pools"].as_array().unwrap().iter().any(|pool| is_witness(pool) && pool["model"] == model);
        assert!(status == 200 && listed, "{status}");
        for path in ["/livez", "/healthz", "/metrics"] {
            assert_eq!(ask(address, "GET", path, "").await.0, 200, "{path}");
        }
    }
}

fn is_witness(pool: &Value) -> bool {
    pool["key"]["dgd_name"] == "witness"
}
