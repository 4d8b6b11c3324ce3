//! Runs helm: the one that `HELM` names, else that which `make helm` built, else the one on PATH.

use std::{
    env,
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail};

/// The version of Kubernetes that is rendered for: that of the control planes of tests.
const KUBERNETES: &str = "1.34.0";

/// A file of the repository.
pub(crate) fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

/// Renders the chart in `folder` with values in YAML, as `helm template` does.
///
/// # Errors
/// Helm's words, when it refuses the values.
pub(crate) fn template(
    folder: &Path,
    release: &str,
    namespace: &str,
    values: &str,
) -> Result<String, String> {
    let folder = folder.display().to_string();
    let arguments = ["template", release, &folder, "--namespace", namespace, "--kube-version", KUBERNETES];
    run(&[&arguments[..], &["--values", "-"]].concat(), values).map_err(|error| format!("{error:#}"))
}

/// Runs helm with `input` on its standard input, and gives what it writes.
///
/// # Errors
/// It is not there, or fails: the message has its words.
pub(crate) fn run(arguments: &[&str], input: &str) -> Result<String> {
    let program = program();
    let mut child = Command::new(&program)
        .args(arguments)
        // What a user has set for helm or a cluster is not for tests.
        .envs(["HELM_CONFIG_HOME", "HELM_CACHE_HOME", "HELM_DATA_HOME"].map(|name| (name, env::temp_dir())))
        .env_remove("HELM_NAMESPACE")
        .env_remove("KUBECONFIG")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("starting {}: run `make helm`, or let HELM name it", program.display()))?;
    // One that ends without reading says why itself.
    let _ = child.stdin.take().context("no standard input")?.write_all(input.as_bytes());
    let output = child.wait_with_output()?;
    if !output.status.success() {
        bail!("{}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8(output.stdout)?)
}

fn program() -> PathBuf {
    let built = repository("target/tools/helm");
    match env::var_os("HELM").filter(|named| !named.is_empty()) {
        Some(named) => named.into(),
        None if built.is_file() => built,
        None => "helm".into(),
    }
}
