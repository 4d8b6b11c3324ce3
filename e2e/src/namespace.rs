//! Namespaces that one test has to itself, so that tests share clusters.

use std::future::Future;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Client,
    api::{DeleteParams, PostParams},
};

/// A namespace of the same new name in one cluster or in several. It stays when this is dropped: clusters of
/// tests end with them.
#[derive(Clone)]
pub struct TempNamespace {
    name: String,
    clients: Vec<Client>,
}

impl TempNamespace {
    /// Makes a namespace whose name starts with `prefix`.
    ///
    /// # Errors
    /// The API server refused.
    pub async fn new(client: Client, prefix: &str) -> Result<Self> {
        Self::in_all([client], prefix).await
    }

    /// Makes namespaces of one name in several clusters: what is exported from one is imported into its
    /// namesake in the others (KEP-1645, namespace sameness).
    ///
    /// # Errors
    /// An API server refused.
    pub async fn in_all(clients: impl IntoIterator<Item = Client>, prefix: &str) -> Result<Self> {
        let name = format!("{prefix}-{:08x}", rand::random::<u32>());
        let clients: Vec<Client> = clients.into_iter().collect();
        let mut namespace = Namespace::default();
        namespace.metadata.name = Some(name.clone());
        for client in &clients {
            Api::<Namespace>::all(client.clone())
                .create(&PostParams::default(), &namespace)
                .await
                .with_context(|| format!("making namespace {name}"))?;
        }
        Ok(Self { name, clients })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Deletes it, without waiting until what is in it is gone.
    ///
    /// # Errors
    /// An API server refused.
    pub async fn delete(self) -> Result<()> {
        for client in self.clients {
            let namespaces: Api<Namespace> = Api::all(client);
            namespaces
                .delete(&self.name, &DeleteParams::default())
                .await
                .with_context(|| format!("deleting namespace {}", self.name))?;
        }
        Ok(())
    }
}

/// Runs a test in a new namespace and deletes that afterwards, whether it failed or not.
///
/// # Errors
/// Those of the test, and those of making and deleting the namespace.
pub async fn with_temp_ns<T, F>(client: Client, prefix: &str, test: impl FnOnce(String) -> F) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    let namespace = TempNamespace::new(client, prefix).await?;
    let outcome = test(namespace.name().to_owned()).await;
    namespace.delete().await?;
    outcome
}
