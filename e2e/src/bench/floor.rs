//! The floor: what the machine itself needs to bring some bytes from a writer to all watchers over loopback.
//!
//! A thread takes changes from one connection and copies each to those of the watchers, with system calls and nothing
//! else; the watchers are those of the systems that are compared.

use std::{
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    sync::Arc,
    thread,
};

use anyhow::{Context, Result};
use tokio::{
    io::AsyncWriteExt,
    net::{self, TcpSocket},
    sync::Mutex,
};

use super::{
    hop::Target,
    machine::Cores,
    wire::{self, Request},
};

/// More watchers than this cannot wait to be accepted.
const BACKLOG: u32 = 4096;

/// A thread that copies changes to watchers.
#[derive(Debug)]
pub struct Relay {
    address: SocketAddr,
    writer: Mutex<net::TcpStream>,
    bytes: usize,
}

impl Relay {
    /// Starts the thread, for changes of about `bytes`. It ends when this is dropped.
    ///
    /// # Errors
    /// The system has no port or thread left.
    pub async fn start(cores: Cores, bytes: usize) -> Result<Arc<Self>> {
        let socket = TcpSocket::new_v4()?;
        socket.bind((Ipv4Addr::LOCALHOST, 0).into())?;
        let listener = socket.listen(BACKLOG)?.into_std()?;
        let address = listener.local_addr()?;
        let writer = net::TcpStream::connect(address).await?;
        writer.set_nodelay(true)?;
        let frame = change(bytes, 0).len();
        let copying = move || {
            // Its end is the end of the writer or of a watcher, and no failure.
            drop(copy(&listener, frame));
        };
        let start = async move {
            thread::Builder::new().name("relay".to_owned()).spawn(copying).context("starting a thread")?;
            Ok(())
        };
        cores.start_server(start).await?;
        Ok(Arc::new(Self { address, writer: Mutex::new(writer), bytes }))
    }
}

/// Copies what the first connection says, in pieces of `frame` bytes, to all others, until it is closed.
fn copy(listener: &TcpListener, frame: usize) -> Result<()> {
    listener.set_nonblocking(false)?;
    let (mut from, _) = listener.accept()?;
    listener.set_nonblocking(true)?;
    let mut to: Vec<TcpStream> = Vec::new();
    let mut bytes = vec![0; frame];
    loop {
        from.read_exact(&mut bytes)?;
        // Who was connected before the change was made is waiting already.
        while let Ok((watcher, _)) = listener.accept() {
            watcher.set_nonblocking(false)?;
            watcher.set_nodelay(true)?;
            to.push(watcher);
        }
        to.retain_mut(|watcher| watcher.write_all(&bytes).is_ok());
    }
}

/// The frames of one change.
fn change(bytes: usize, number: u64) -> Vec<u8> {
    let mut text = wire::mark(number).to_vec();
    text.resize(bytes.max(wire::MARK_BYTES), b'.');
    wire::data(&text)
}

impl Target for Relay {
    fn lanes(&self) -> usize {
        1
    }

    async fn change(&self, _lane: usize, number: u64) -> Result<()> {
        Ok(self.writer.lock().await.write_all(&change(self.bytes, number)).await?)
    }

    fn watch(&self, _watcher: usize) -> (SocketAddr, Request) {
        (self.address, Request { path: "/", message: Vec::new(), only: true })
    }

    /// Who is connected counts.
    fn greets(&self) -> bool {
        false
    }

    fn pid(&self) -> Option<u32> {
        None
    }
}
