//! The stand-in for DynamoDB, on a port that other Pods reach.

use anyhow::{Context, Result};
use mcs_runtime::{
    dynamodb::double::{Double, Options},
    shutdown::Drain,
};
use tokio::{io::copy_bidirectional, net::TcpStream};

use super::{TABLE, listen};

/// Serves until the drain.
pub(super) async fn run(region: String, shutdown: &Drain) -> Result<()> {
    let double = Double::empty(Options { region, ..Options::default() }).await;
    let endpoint = double.endpoint();
    // It listens on loopback alone, as tests want it.
    let inner = endpoint.strip_prefix("http://").context("an endpoint that is no http URL")?.to_owned();
    let listener = listen(TABLE).await?;
    let passing = async {
        loop {
            let (mut outer, _) = listener.accept().await.context("taking a connection")?;
            let inner = inner.clone();
            tokio::spawn(async move {
                if let Ok(mut inner) = TcpStream::connect(inner).await {
                    // Either side may go.
                    let _ = copy_bidirectional(&mut outer, &mut inner).await;
                }
            });
        }
    };
    tokio::select! {
        () = shutdown.draining() => Ok(()),
        failed = passing => failed,
    }
}
