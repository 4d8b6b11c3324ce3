//! A reader of server-sent events.

use crate::service::{PATIENCE, head, read_head};
use serde_json::Value;
use std::net::SocketAddr;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// A reader of a stream.
pub(crate) struct Events<S = TcpStream> {
    stream: BufReader<S>,
    text: String,
    /// Comments that came.
    comments: usize,
}

impl Events {
    /// Begins to watch.
    pub(crate) async fn open(address: SocketAddr, path: &str) -> Self {
        Self::on(TcpStream::connect(address).await.unwrap(), path).await
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Events<S> {
    /// On a connection that is there.
    pub(crate) async fn on(mut stream: S, path: &str) -> Self {
        stream.write_all(head("GET", path, &[], 0).as_bytes()).await.unwrap();
        let mut stream = BufReader::new(stream);
        let mut answer = String::new();
        while !answer.ends_with("\r\n\r\n") {
            assert!(timeout(PATIENCE, stream.read_line(&mut answer)).await.unwrap().unwrap() > 0, "{answer}");
        }
        let (status, headers) = read_head(answer.trim_end());
        let headers = ["content-type", "cache-control"].map(|name| headers[name].as_str());
        assert_eq!((status, headers), (200, ["text/event-stream", "no-store"]));
        Self { stream, text: String::new(), comments: 0 }
    }

    /// The next event; none when the stream has ended in order.
    pub(crate) async fn next(&mut self) -> Option<(String, Value)> {
        timeout(PATIENCE, self.read()).await.expect("no event comes")
    }

    async fn read(&mut self) -> Option<(String, Value)> {
        loop {
            if let Some((event, rest)) = self.text.split_once("\n\n") {
                let (event, rest) = (event.to_owned(), rest.to_owned());
                self.text = rest;
                if event.starts_with(':') {
                    self.comments += 1;
                    continue;
                }
                let (name, data) = event.split_once('\n').unwrap();
                let (name, data) =
                    (name.strip_prefix("event: ").unwrap(), data.strip_prefix("data: ").unwrap());
                return Some((name.to_owned(), serde_json::from_str(data).unwrap()));
            }
            let mut size = String::new();
            self.stream.read_line(&mut size).await.unwrap();
            let size = usize::from_str_radix(size.trim(), 16).unwrap();
            let mut chunk = vec![0; size + 2];
            self.stream.read_exact(&mut chunk).await.unwrap();
            if size == 0 {
                assert_eq!(self.text, "", "it ends within an event");
                return None;
            }
            chunk.truncate(size);
            // A chunk may end within a character; those of these tests have none of several bytes.
            self.text.push_str(std::str::from_utf8(&chunk).unwrap());
        }
    }

    /// The data of the next event, which has this name.
    pub(crate) async fn named(&mut self, name: &str) -> Value {
        let (found, data) = self.next().await.expect("the stream has ended");
        assert_eq!(found, name, "{data}");
        data
    }
}
