//! TLS on both ports: who may do what, and certificates that change while they are used.

mod clients;
mod identities;
mod rotation;

use std::sync::Arc;

use hyper_util::rt::TokioIo;
pub(crate) use mcs_runtime::tls::testing::Secret;
use mcs_runtime::tls::testing::{Ca, Issued, shake};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tonic::transport::{Channel, Endpoint};

use crate::started::{LIMIT, Started};

/// A client of the CA that shows `own`.
fn grpc_client(ca: &Ca, own: Option<&Issued>) -> Arc<TlsConnector> {
    Arc::new(ca.client(own, &["h2"]))
}

/// A connection of a gRPC client.
async fn channel(registry: &Started, client: &Arc<TlsConnector>) -> Result<Channel, tonic::transport::Error> {
    let (address, client) = (registry.grpc, Arc::clone(client));
    let connect = tower::service_fn(move |_| {
        let client = Arc::clone(&client);
        async move {
            Ok::<_, std::io::Error>(TokioIo::new(shake(&client, TcpStream::connect(address).await?).await?))
        }
    });
    Endpoint::from_static("http://localhost").connect_with_connector(connect).await
}

/// The whole answer of the REST port to a request without a body.
async fn rest(
    registry: &Started,
    client: &TlsConnector,
    method: &str,
    path: &str,
) -> std::io::Result<String> {
    send(registry, client, method, path, "").await
}

/// The whole answer of the REST port.
async fn send(
    registry: &Started,
    client: &TlsConnector,
    method: &str,
    path: &str,
    body: &str,
) -> std::io::Result<String> {
    let mut stream = shake(client, TcpStream::connect(registry.rest).await?).await?;
    let length = body.len();
    let head = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n");
    let request = format!("{head}content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    tokio::time::timeout(LIMIT, stream.read_to_string(&mut answer)).await.unwrap()?;
    Ok(answer)
}
