//! Both APIs without ports, to be called in process.

use std::net::Ipv4Addr;
use std::sync::Arc;

use axum::{Extension, Router};
use mcs_core::ids::Epoch;
use mcs_core::time::Clock;
use mcs_runtime::http::Peer;
use mcs_runtime::shutdown::Drain;
use mcs_runtime::tls::Certificate;

use crate::caller::Caller;
use crate::ports::Ports;
use crate::store::Memory;
use crate::{Config, Parts, grpc, rest};

/// The APIs of one registry, as services: what arrives at a port arrives here as it is. Records are held in memory, and
/// nothing judges leases unless a call comes.
#[derive(Clone, Debug)]
pub struct Apis {
    /// `dynamo.mcs.v1` over gRPC.
    pub grpc: Router,
    /// The same as REST.
    pub rest: Router,
}

impl Apis {
    /// The APIs of a registry that knows nothing yet and asks for no certificates: anyone may do everything.
    ///
    /// # Errors
    /// A metric that cannot be made.
    pub fn new(config: Config, clock: Arc<dyn Clock>, shutdown: Drain) -> anyhow::Result<Self> {
        Self::called_by(Caller::Anyone, config, clock, shutdown)
    }

    /// The same as the holder of a certificate finds them, over a connection of which the certificate was verified.
    ///
    /// # Errors
    /// A metric that cannot be made.
    pub fn of_certificate(
        certificate: Certificate,
        config: Config,
        clock: Arc<dyn Clock>,
        shutdown: Drain,
    ) -> anyhow::Result<Self> {
        let address = (Ipv4Addr::LOCALHOST, 0).into();
        let peer = Peer { address, certificate: Some(certificate) };
        Self::called_by(Caller::identify(&peer, true), config, clock, shutdown)
    }

    fn called_by(
        caller: Caller,
        config: Config,
        clock: Arc<dyn Clock>,
        shutdown: Drain,
    ) -> anyhow::Result<Self> {
        let store = Arc::new(Memory::default());
        let parts = Parts::new(&config, Epoch(1), Arc::clone(&clock), store, shutdown.clone())?;
        let Parts { service, metrics, .. } = parts;
        let ports = Ports::new(config, clock, None, metrics, shutdown);
        let of_caller = |routes: Router| routes.layer(Extension(caller.clone()));
        Ok(Self {
            grpc: of_caller(grpc::router(grpc::calls(Arc::clone(&service), &ports), &ports)),
            rest: of_caller(rest::router(service, &ports)),
        })
    }
}
