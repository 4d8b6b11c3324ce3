//! The programs of others that the clusters are made and used with: docker, kind, helm and kubectl.

use std::{
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use mcs_core::time::Clock;
use mcs_runtime::clock::SystemClock;
use tokio::{io::AsyncWriteExt, process::Command, time::timeout};

use crate::assets::workspace_root;

/// What takes longest is the first pull of the nodes' image.
const LIMIT: Duration = Duration::from_secs(20 * 60);
/// Names the helm to use, as for the tests of the charts.
const HELM: &str = "HELM";

/// Runs programs; what they are called with and say is in `commands.log` of the folder.
#[derive(Clone, Debug)]
pub(crate) struct Tools {
    folder: PathBuf,
    helm: String,
}

impl Tools {
    /// Tools that write to a folder, which is made.
    pub(crate) fn new(folder: &Path) -> Result<Self> {
        fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
        let built = workspace_root().join("target/tools/helm");
        let named = std::env::var(HELM).ok().filter(|named| !named.is_empty());
        let helm = named.unwrap_or_else(|| match built.is_file() {
            true => built.display().to_string(),
            false => "helm".to_owned(),
        });
        Ok(Self { folder: folder.to_owned(), helm })
    }

    /// Where what is kept lies.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The helm to run.
    pub(crate) fn helm(&self) -> &str {
        &self.helm
    }

    /// Runs a program to its end; answers its standard output.
    ///
    /// # Errors
    /// It is not there, or fails: the message has all that it said.
    pub(crate) async fn run(&self, program: &str, arguments: &[&str]) -> Result<String> {
        self.pipe(program, arguments, "").await
    }

    /// The same with a text on its standard input.
    ///
    /// # Errors
    /// As [`Tools::run`].
    pub(crate) async fn pipe(&self, program: &str, arguments: &[&str], input: &str) -> Result<String> {
        let line = format!("{program} {}", arguments.join(" "));
        let began = SystemClock.elapsed();
        let outcome = timeout(LIMIT, output(program, arguments, input)).await;
        let took = SystemClock.elapsed().since(began).as_secs_f64();
        let (said, result) = match outcome {
            Err(_) => ("no end".to_owned(), Err(format!("has not ended after {} s", LIMIT.as_secs()))),
            Ok(Err(error)) => (format!("{error:#}"), Err(format!("{error:#}"))),
            Ok(Ok(output)) => {
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
                let both = format!("{}\n{}", text(&output.stdout), text(&output.stderr));
                let status = output.status;
                let failed = format!("{status}:\n{}", both.trim());
                (both, if status.success() { Ok(text(&output.stdout)) } else { Err(failed) })
            }
        };
        self.log(&format!("[{took:.1} s] {line}\n{}\n", said.trim()))?;
        match result {
            Ok(stdout) => Ok(stdout),
            Err(failed) => bail!("`{line}`: {failed}"),
        }
    }

    fn log(&self, text: &str) -> Result<()> {
        let path = self.folder.join("commands.log");
        let file = File::options().create(true).append(true).open(&path);
        let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
        written.with_context(|| format!("writing {}", path.display()))
    }
}

async fn output(program: &str, arguments: &[&str], input: &str) -> Result<std::process::Output> {
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        // Ctrl-C in a terminal is for us; we end what we started.
        .process_group(0)
        .spawn()
        .with_context(|| format!("starting {program}: is it on PATH?"))?;
    let mut stdin = child.stdin.take().context("no standard input")?;
    let feeding = async move {
        // One that ends without reading says why itself.
        let _ = stdin.write_all(input.as_bytes()).await;
        drop(stdin);
    };
    let ((), output) = tokio::join!(feeding, child.wait_with_output());
    Ok(output?)
}
