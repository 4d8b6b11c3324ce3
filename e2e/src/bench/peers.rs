//! Programs of others that ours are compared with. They are not part of this workspace: each is looked for on the `PATH`
//! or where a variable says, and where it is missing the benchmark says so and shows ours alone.

use std::{
    env, fs,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use tokio::{net::TcpStream, process::Command};

use super::machine::Cores;
use crate::{
    directory::Directory,
    programs::{Program, free_address},
    wait::wait_for,
};

/// A file system in memory.
const IN_MEMORY: &str = "/dev/shm";
/// Where distributions put servers, whether or not the `PATH` has it.
const ALSO: &str = "/usr/sbin";

/// A program of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its file's name.
    pub name: &'static str,
    /// The variable that has its path.
    pub variable: &'static str,
    /// How one comes by it.
    pub from: &'static str,
}

/// The registry of services in Rust that speaks as Nacos does.
pub const RNACOS: Peer =
    Peer { name: "rnacos", variable: "RNACOS", from: "cargo install rnacos --version 0.8.8 --locked" };
/// The server of files.
pub const NGINX: Peer = Peer { name: "nginx", variable: "NGINX", from: "the package nginx-light of Debian" };

impl Peer {
    /// Where it is.
    pub fn find(self) -> Option<PathBuf> {
        let given = env::var_os(self.variable).map(PathBuf::from);
        let path = env::var_os("PATH").unwrap_or_default();
        let folders = env::split_paths(&path).chain([PathBuf::from(ALSO)]);
        given.into_iter().chain(folders.map(|folder| folder.join(self.name))).find(|file| file.is_file())
    }

    /// What is missing, for the notes.
    pub fn missing(self) -> String {
        let Self { name, variable, from } = self;
        format!("peer: none, {name} is neither on the PATH nor where {variable} says ({from})")
    }
}

/// A peer that runs.
#[derive(Debug)]
pub struct Running {
    // The process ends before its folder goes.
    program: Program,
    address: SocketAddr,
    version: String,
    folder: Directory,
}

impl Running {
    /// Starts r-nacos without services.
    ///
    /// # Errors
    /// It does not start.
    pub async fn rnacos(cores: Cores, file: &Path) -> Result<Self> {
        let folder = in_memory("rnacos")?;
        let (address, console) = (free_address()?, free_address()?);
        // Its own calls have a port of their own, which it makes known.
        let grpc = free_address()?;
        let data = folder.path().display().to_string();
        let environment = [
            ("RNACOS_HTTP_PORT", address.port().to_string()),
            ("RNACOS_GRPC_PORT", grpc.port().to_string()),
            ("RNACOS_HTTP_CONSOLE_PORT", console.port().to_string()),
            ("RNACOS_RAFT_NODE_ADDR", grpc.to_string()),
            ("RNACOS_CONFIG_DB_DIR", data.clone()),
            ("RNACOS_DATA_DIR", data),
            ("RUST_LOG", "error".to_owned()),
        ];
        let version = version(file, "--version").await?;
        let started = Self::start(cores, file, "rnacos", &folder, Vec::new(), environment.to_vec());
        let program = started.await?;
        let running = Self { program, address, version, folder };
        running.takes("GET /nacos/v1/ns/service/list?pageNo=1&pageSize=1 HTTP/1.0\r\n\r\n").await?;
        Ok(running)
    }

    /// Starts nginx with one file, which it serves at `/pools`.
    ///
    /// # Errors
    /// It does not start.
    pub async fn nginx(cores: Cores, file: &Path, served: &[u8]) -> Result<Self> {
        let folder = in_memory("nginx")?;
        let address = free_address()?;
        let path = folder.path();
        fs::write(path.join("pools"), served)?;
        let root = path.display();
        // One process, as it has one core; the file is in memory, and nothing is logged.
        let configuration = format!(
            "daemon off; master_process off; worker_processes 1; pid {root}/pid; error_log {root}/error.log warn;\n\
             events {{ worker_connections 1024; }}\n\
             http {{\n\
             access_log off; sendfile on; tcp_nopush on; tcp_nodelay on; default_type application/json;\n\
             keepalive_requests 1000000000; open_file_cache max=8;\n\
             client_body_temp_path {root}; proxy_temp_path {root}; fastcgi_temp_path {root}; uwsgi_temp_path {root};\n\
             scgi_temp_path {root};\n\
             server {{ listen {address} backlog=1024; root {root}; }}\n\
             }}\n"
        );
        fs::write(path.join("nginx.conf"), configuration)?;
        let version = version(file, "-v").await?;
        let arguments = vec!["-p".to_owned(), root.to_string(), "-c".to_owned(), "nginx.conf".to_owned()];
        let started = Self::start(cores, file, "nginx", &folder, arguments, Vec::new());
        let program = started.await?;
        let running = Self { program, address, version, folder };
        running.takes("GET /nginx.conf HTTP/1.0\r\n\r\n").await?;
        Ok(running)
    }

    async fn start(
        cores: Cores,
        file: &Path,
        name: &'static str,
        folder: &Directory,
        arguments: Vec<String>,
        environment: Vec<(&'static str, String)>,
    ) -> Result<Program> {
        let (file, folder) = (file.to_owned(), folder.path().to_owned());
        let start =
            async move { Program::start_foreign(&file, name, &folder, &arguments, &environment).await };
        cores.start_server(start).await
    }

    /// Waits until a request is answered with success.
    async fn takes(&self, request: &str) -> Result<()> {
        let (address, log) = (self.address, self.program.log_tail());
        let taken = wait_for("an answer of the peer", async || -> Result<()> {
            let stream = TcpStream::connect(address).await?;
            let mut read = String::new();
            let (mut from, mut to) = stream.into_split();
            tokio::io::AsyncWriteExt::write_all(&mut to, request.as_bytes()).await?;
            tokio::io::AsyncReadExt::read_to_string(&mut from, &mut read).await?;
            let first = read.lines().next().unwrap_or_default().to_owned();
            anyhow::ensure!(first.contains(" 200"), "it answers {first:?}");
            Ok(())
        });
        taken.await.with_context(|| log)
    }

    /// Where it listens.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// What it is, for the notes.
    pub fn note(&self) -> String {
        let place = if self.folder.path().starts_with(IN_MEMORY) { "in memory" } else { "on disk" };
        format!("peer: {}, its data {place}", self.version)
    }
}

fn in_memory(name: &str) -> Result<Directory> {
    if Path::new(IN_MEMORY).is_dir() {
        Directory::create_in(&Path::new(IN_MEMORY).join("mcs-bench"), name, false)
    } else {
        Directory::create(name)
    }
}

/// The line in which a program tells its version.
async fn version(file: &Path, flag: &str) -> Result<String> {
    let told = Command::new(file).arg(flag).output().await;
    let told = told.with_context(|| format!("asking {} for its version", file.display()))?;
    let text = [told.stdout, told.stderr].concat();
    let line = String::from_utf8_lossy(&text).lines().next().unwrap_or_default().trim().to_owned();
    Ok(line.trim_start_matches("nginx version: ").to_owned())
}
