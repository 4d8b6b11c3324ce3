//! Lists that are read once, a page at a time.

use kube::api::{Api, ListParams, ObjectMeta};
use kube::{Resource, core::PartialObjectMeta};
use mcs_runtime::kube::follow::PAGE;
use serde::de::DeserializeOwned;
use std::fmt::Debug;

/// Shows the metadata of all that a list has, over all its pages.
///
/// # Errors
/// Why a page could not be read; what earlier pages had was shown.
pub(crate) async fn each<K>(
    api: &Api<K>,
    params: ListParams,
    mut see: impl FnMut(ObjectMeta),
) -> kube::Result<()>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let mut params = params.limit(PAGE);
    loop {
        let page = api.list_metadata(&params).await?;
        page.items.into_iter().for_each(|PartialObjectMeta { metadata, .. }| see(metadata));
        match page.metadata.continue_ {
            Some(next) if !next.is_empty() => params.continue_token = Some(next),
            _ => return Ok(()),
        }
    }
}
