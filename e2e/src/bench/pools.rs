//! The discovery service under measure, and the pools that are registered with it.

use std::{net::SocketAddr, path::PathBuf};

use anyhow::{Result, ensure};

use super::{
    machine::{self, Cores},
    requests::{self, Connection, Load, Until, load},
};
use crate::{
    directory::Directory,
    programs::{Program, free_address},
};

/// Connections at once, as the goals have them.
pub const CONNECTIONS: usize = 64;
/// Longer than any measurement: what is registered stays without being renewed.
const LEASE_SECS: u32 = 86_400;
const NAME: &str = "global-discovery-service";

/// A discovery service with registrations in memory.
#[derive(Debug)]
pub struct Service {
    // The process ends before its folder goes.
    program: Program,
    address: SocketAddr,
    _folder: Directory,
}

impl Service {
    /// Starts one without pools.
    ///
    /// # Errors
    /// It is not built, or does not start.
    pub async fn start(cores: Cores) -> Result<Self> {
        let folder = Directory::create("discovery")?;
        let (address, path) = (free_address()?, folder.path().to_owned());
        let mut program = cores.start_server(start(address, path)).await?;
        program.ready(&format!("http://{address}/healthz")).await?;
        Ok(Self { program, address, _folder: folder })
    }

    /// Where it listens.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its process.
    pub const fn pid(&self) -> u32 {
        self.program.pid()
    }

    /// Its memory, in bytes.
    ///
    /// # Errors
    /// It has ended.
    pub fn memory(&self) -> Result<f64> {
        #[expect(clippy::cast_precision_loss, reason = "the memory of a process")]
        Ok(machine::resident(self.pid())? as f64)
    }

    /// Registers the pools of the numbers below `count`.
    ///
    /// # Errors
    /// It refused one.
    pub async fn register(&self, count: usize) -> Result<Load> {
        load(self.address, CONNECTIONS, Until::Count(count), 200, registering).await
    }

    /// The list of pools, as it is sent.
    ///
    /// # Errors
    /// There is none.
    pub async fn list(&self) -> Result<Vec<u8>> {
        let mut connection = Connection::open(self.address).await?;
        let (head, body) = connection.fetch(&requests::get("/pools", "")).await?;
        ensure!(head.status == 200, "{} to GET /pools: {}", head.status, String::from_utf8_lossy(&body));
        Ok(body)
    }
}

async fn start(address: SocketAddr, folder: PathBuf) -> Result<Program> {
    let arguments = [
        format!("--listen={address}"),
        format!("--lease-duration-secs={LEASE_SECS}"),
        "--log-level=warn".to_owned(),
    ];
    Program::start(NAME, NAME, &folder, &arguments, &[]).await
}

/// The request that registers the pool of this number.
pub fn registering(number: usize) -> Vec<u8> {
    requests::post("/pools", "application/json", &registration(number, 8))
}

/// What the relays of a pool say; some 320 bytes of it are listed.
pub fn registration(number: usize, workers: usize) -> String {
    let (high, low) = (number / 250 % 250, number % 250);
    format!(
        "{{\"key\":{{\"cluster_id\":\"cluster-{low:03}\",\"namespace\":\"inference\",\"dgd_name\":\"pool-{number:06}\"}},\
         \"location\":{{\"region\":\"us-east-2\",\"availability_zone\":\"us-east-2a\",\"datacenter\":null}},\
         \"model\":\"example/model-70b\",\"capabilities\":[\"chat\",\"tools\"],\"capacity\":[{{\"workers\":{workers}}}],\
         \"frontends\":[\"http://10.{high}.{low}.7:8000/\"]}}"
    )
}
