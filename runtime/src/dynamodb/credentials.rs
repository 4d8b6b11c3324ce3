//! Credentials that are waited for longer than a call.

use std::sync::Arc;

use aws_credential_types::Credentials;
use aws_credential_types::provider::error::CredentialsError;
use aws_credential_types::provider::{self, ProvideCredentials, SharedCredentialsProvider, future};
use tokio::sync::Mutex;
use tokio::task::JoinHandle;

/// Looks for credentials in a task of its own. A call that gives up does not end the search with it: where they come
/// from another service, that may take longer than any call of ours, and each would begin anew and never end.
#[derive(Clone, Debug)]
pub(super) struct Lasting {
    inner: SharedCredentialsProvider,
    /// The search that goes on, or whose result nobody has taken.
    search: Arc<Mutex<Option<JoinHandle<provider::Result>>>>,
}

impl Lasting {
    pub(super) fn new(inner: SharedCredentialsProvider) -> Self {
        Self { inner, search: Arc::default() }
    }

    async fn load(&self) -> Result<Credentials, CredentialsError> {
        let mut search = self.search.lock().await;
        let inner = self.inner.clone();
        let task =
            search.get_or_insert_with(|| tokio::spawn(async move { inner.provide_credentials().await }));
        let found = task.await;
        *search = None;
        found.unwrap_or_else(|error| Err(CredentialsError::unhandled(error)))
    }
}

impl ProvideCredentials for Lasting {
    fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
    where
        Self: 'a,
    {
        future::ProvideCredentials::new(self.load())
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::Notify;

    use super::*;

    /// Gives credentials when it is told to.
    #[derive(Debug, Default)]
    struct Slow {
        asked: Notify,
        answer: Notify,
    }

    #[derive(Clone, Debug)]
    struct Shared(Arc<Slow>);

    impl ProvideCredentials for Shared {
        fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
        where
            Self: 'a,
        {
            future::ProvideCredentials::new(async {
                self.0.asked.notify_one();
                self.0.answer.notified().await;
                Ok(Credentials::new("key", "secret", None, None, "test"))
            })
        }
    }

    #[tokio::test]
    async fn a_call_that_gives_up_leaves_the_search_to_the_next_one() {
        let slow = Arc::new(Slow::default());
        let lasting = Lasting::new(SharedCredentialsProvider::new(Shared(Arc::clone(&slow))));
        tokio::select! {
            biased;
            found = lasting.provide_credentials() => panic!("nobody answered: {found:?}"),
            () = slow.asked.notified() => {}
        }
        // Asked once; who asks now is answered by that.
        slow.answer.notify_one();
        let found = lasting.provide_credentials().await.unwrap();
        assert_eq!(found.access_key_id(), "key");
        tokio::select! {
            biased;
            found = lasting.provide_credentials() => panic!("nobody answered: {found:?}"),
            () = slow.asked.notified() => {}
        }
    }
}
