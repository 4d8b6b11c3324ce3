//! What controllers may do in a cluster: the files that are checked in, for a ServiceAccount of each stack.
//!
//! In a cluster, and in a watched namespace, each namespace of controllers has roles and bindings of its own, so that
//! stacks which share a cluster do not share permissions.

use anyhow::Result;
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;

use crate::Cluster;

/// The ServiceAccount of controllers.
pub(crate) const CONTROLLER_ACCOUNT: &str = "mcs-controller";
/// The namespace of controllers in all files.
const SYSTEM_NAMESPACE: &str = "mcs-system";
/// For controllers of all namespaces.
const EVERYWHERE: &str = include_str!("../../controller/deploy/rbac.yaml");
/// For controllers that watch some namespaces only, there called [`WATCHED`].
const WATCHING: &str = include_str!("../../controller/deploy/rbac-watch-namespaces.yaml");
/// The watched namespace in [`WATCHING`].
const WATCHED: &str = "shop";
/// What controllers need besides to find out who their cluster is.
const IDENTITY: &str = include_str!("../../controller/deploy/rbac-identity.yaml");
/// What controllers may be given besides, to take their finalizer off in a namespace whose Role has gone.
const FINALIZERS: &str = include_str!("../../controller/deploy/rbac-finalizers.yaml");
/// What controllers need besides to create namespaces.
const CREATE_NAMESPACES: &str = include_str!("../../controller/deploy/rbac-create-namespaces.yaml");
/// Roles whose content differs from one stack to the next, or that stand besides the one of the account's name.
const FURTHER_ROLES: [&str; 4] = [
    "mcs-controller-namespaces",
    "mcs-controller-identity",
    "mcs-controller-finalizers",
    "mcs-controller-create-namespaces",
];

/// Makes the namespace `system`, and gives controllers in it what they need for the namespaces `watched`, all when
/// empty. To those of them that do not exist [`permit_in`] lets them later.
pub(crate) async fn permit(cluster: &Cluster, system: &str, watched: &[impl AsRef<str>]) -> Result<()> {
    if watched.is_empty() {
        return permit_everywhere(cluster, system).await;
    }
    let watched: Vec<_> = watched.iter().map(AsRef::as_ref).collect();
    let by_name = |names: &str| format!("[kube-system, {names}]");
    let (_, common) = in_watched();
    let common = common.replace(&by_name(WATCHED), &by_name(&watched.join(", ")));
    cluster.apply_yaml(&of(&common, system)).await?;
    let namespaces = Api::<Namespace>::all(cluster.client());
    for namespace in watched {
        if namespaces.get_opt(namespace).await?.is_some() {
            permit_in(cluster, system, namespace).await?;
        }
    }
    Ok(())
}

/// As [`permit`] where no namespaces are watched.
pub(crate) async fn permit_everywhere(cluster: &Cluster, system: &str) -> Result<()> {
    cluster.apply_yaml(&of(EVERYWHERE, system)).await
}

/// Gives controllers in `system` their part in one watched namespace.
pub(crate) async fn permit_in(cluster: &Cluster, system: &str, namespace: &str) -> Result<()> {
    let (there, here) = (format!("namespace: {WATCHED}\n"), format!("namespace: {namespace}\n"));
    let (watched, _) = in_watched();
    cluster.apply_yaml(&of(&watched, system).replace(&there, &here)).await
}

/// Lets controllers in `system` find out who their cluster is.
pub(crate) async fn permit_identity(cluster: &Cluster, system: &str) -> Result<()> {
    cluster.apply_yaml(&of(IDENTITY, system)).await
}

/// Lets controllers in `system` take their finalizer off in namespaces whose Role has gone.
pub(crate) async fn permit_finalizers(cluster: &Cluster, system: &str) -> Result<()> {
    cluster.apply_yaml(&of(FINALIZERS, system)).await
}

/// Lets controllers in `system` create namespaces.
pub(crate) async fn permit_namespaces(cluster: &Cluster, system: &str) -> Result<()> {
    cluster.apply_yaml(&of(CREATE_NAMESPACES, system)).await
}

/// The permissions `rbac` for controllers in `system`.
fn of(rbac: &str, system: &str) -> String {
    let binding = |name: &str| format!("  name: {name}\nroleRef");
    let rbac = rbac.replace(SYSTEM_NAMESPACE, system).replace(&binding(CONTROLLER_ACCOUNT), &binding(system));
    let renamed = |rbac: String, role: &&str| rbac.replace(*role, &role.replace(CONTROLLER_ACCOUNT, system));
    FURTHER_ROLES.iter().fold(rbac, renamed)
}

/// The documents of [`WATCHING`] that are in the watched namespace, and the others.
fn in_watched() -> (String, String) {
    let mark = format!("namespace: {WATCHED}\n");
    let (watched, common): (Vec<_>, Vec<_>) =
        WATCHING.split("\n---\n").partition(|document| document.contains(&mark));
    (watched.join("\n---\n"), common.join("\n---\n"))
}
