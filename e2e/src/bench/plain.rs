//! The floor of HTTP: what the machine and the clients need where a server does nothing but read a request and send the
//! same bytes to all of them.

use std::{io, net::SocketAddr, sync::Arc, thread};

use anyhow::{Context, Result};
use memchr::memmem;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    runtime::Builder,
    sync::oneshot,
};

use super::machine::Cores;

/// Of a request with its body.
const MOST_BYTES: usize = 64 * 1024;

/// A thread that answers every request with the same bytes. It ends when this is dropped.
#[derive(Debug)]
pub struct Plain {
    address: SocketAddr,
    _alive: oneshot::Sender<()>,
}

impl Plain {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system has no port or thread left.
    pub async fn start(cores: Cores, body: Vec<u8>) -> Result<Self> {
        let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let (alive, over) = oneshot::channel();
        let answer =
            [format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len()).into_bytes(), body];
        let answer = Arc::new(answer.concat());
        let serving = move || -> Result<()> {
            let runtime = Builder::new_current_thread().enable_io().build()?;
            runtime.block_on(async move {
                let listener = TcpListener::from_std(listener)?;
                let accept = async {
                    loop {
                        let (stream, _) = listener.accept().await?;
                        tokio::spawn(serve(stream, Arc::clone(&answer)));
                    }
                };
                tokio::select! {
                    ended = accept => ended,
                    _ = over => Ok(()),
                }
            })
        };
        let start = async move {
            // Its end is that of the benchmark, and no failure.
            let run = move || drop(serving());
            thread::Builder::new().name("plain".to_owned()).spawn(run).context("starting a thread")?;
            Ok(())
        };
        cores.start_server(start).await?;
        Ok(Self { address, _alive: alive })
    }

    /// Where it listens.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }
}

/// Answers until the client goes.
async fn serve(mut stream: TcpStream, answer: Arc<Vec<u8>>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = vec![0; MOST_BYTES];
    let mut filled = 0;
    loop {
        let read = stream.read(&mut buffer[filled..]).await?;
        if read == 0 {
            return Ok(());
        }
        filled += read;
        if is_whole(&buffer[..filled]) {
            filled = 0;
            stream.write_all(&answer).await?;
        }
    }
}

/// Whether a request has ended. Nobody sends the next one before its answer.
fn is_whole(request: &[u8]) -> bool {
    let Some(end) = memmem::find(request, b"\r\n\r\n") else { return false };
    let length = memmem::find(&request[..end], b"content-length: ").map_or(0, |at| {
        let digits = request[at + 16..end].iter().take_while(|byte| byte.is_ascii_digit());
        digits.fold(0, |length, digit| length * 10 + usize::from(digit - b'0'))
    });
    request.len() >= end + 4 + length
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_ends_with_its_head_or_with_as_much_as_that_says() {
        assert!(is_whole(b"GET / HTTP/1.1\r\n\r\n") && !is_whole(b"GET / HTTP/1.1\r\n"));
        let post = b"POST / HTTP/1.1\r\ncontent-length: 12\r\n\r\n".as_slice();
        assert!(!is_whole(&[post, b"elevenbytes"].concat()));
        assert!(is_whole(&[post, b"twelve bytes"].concat()));
    }
}
