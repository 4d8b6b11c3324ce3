//! Finds etcd, kube-apiserver and kube-controller-manager.
//!
//! First in the folder that `KUBEBUILDER_ASSETS` names, as other Kubernetes projects have it, else in
//! `target/controlplane` of the workspace, where `make controlplane` puts our own build.

use std::{
    env,
    ffi::OsString,
    fmt,
    path::{Path, PathBuf},
};

/// Names a folder with ready-made binaries.
pub const ASSETS_VARIABLE: &str = "KUBEBUILDER_ASSETS";

/// One program of a control plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Program {
    /// The store of the API server.
    Etcd,
    /// kube-apiserver.
    ApiServer,
    /// kube-controller-manager.
    ControllerManager,
}

impl Program {
    /// Every program a cluster needs.
    pub const ALL: [Self; 3] = [Self::Etcd, Self::ApiServer, Self::ControllerManager];

    /// Its file name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::ApiServer => "kube-apiserver",
            Self::ControllerManager => "kube-controller-manager",
        }
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A folder that has every [`Program`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assets {
    folder: PathBuf,
    end_with_stdin: bool,
}

/// Why no binaries were found.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum FindAssets {
    /// The folder of [`ASSETS_VARIABLE`] lacks a program.
    #[error("no {program} in {folder}, which {ASSETS_VARIABLE} names: correct or unset it")]
    NotInNamedFolder {
        /// What is missing.
        program: Program,
        /// Where it was looked for.
        folder: PathBuf,
    },
    /// Our own build was not made.
    #[error(
        "no {program} in {folder}: run `make controlplane`, or let {ASSETS_VARIABLE} name a folder that has it"
    )]
    NotBuilt {
        /// What is missing.
        program: Program,
        /// Where it was looked for.
        folder: PathBuf,
    },
}

impl Assets {
    /// Looks for the binaries.
    ///
    /// # Errors
    /// A program is missing; the message says what to do.
    pub fn find() -> Result<Self, FindAssets> {
        Self::find_with(env::var_os(ASSETS_VARIABLE))
    }

    fn find_with(named: Option<OsString>) -> Result<Self, FindAssets> {
        if let Some(folder) = named.filter(|folder| !folder.is_empty()).map(PathBuf::from) {
            return match missing(&folder) {
                Some(program) => Err(FindAssets::NotInNamedFolder { program, folder }),
                None => Ok(Self { folder, end_with_stdin: false }),
            };
        }
        let folder = workspace_root().join("target/controlplane");
        match missing(&folder) {
            Some(program) => Err(FindAssets::NotBuilt { program, folder }),
            None => Ok(Self { folder, end_with_stdin: true }),
        }
    }

    /// The file of a program.
    pub fn path(&self, program: Program) -> PathBuf {
        self.folder.join(program.name())
    }

    /// An etcd that is nothing else, for who compares with it: what is linked with ours takes memory too. `make bench`
    /// builds it; without it, the etcd that [`Assets::find`] finds.
    ///
    /// # Errors
    /// As [`Assets::find`].
    pub(crate) fn find_etcd() -> Result<Self, FindAssets> {
        let folder = workspace_root().join("target/controlplane/plain");
        if folder.join(Program::Etcd.name()).is_file() {
            return Ok(Self { folder, end_with_stdin: false });
        }
        Self::find()
    }

    /// Whether these binaries can end when their standard input does. Only our own build can.
    pub(crate) fn end_with_stdin(&self) -> bool {
        self.end_with_stdin
    }
}

/// The root of the workspace this crate was compiled in.
pub(crate) fn workspace_root() -> &'static Path {
    let member = Path::new(env!("CARGO_MANIFEST_DIR"));
    member.parent().unwrap_or(member)
}

fn missing(folder: &Path) -> Option<Program> {
    Program::ALL.into_iter().find(|program| !folder.join(program.name()).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_named_folder_without_the_programs_is_refused_and_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let refusal = Assets::find_with(Some(folder.path().into())).expect_err("the folder is empty");
        assert_eq!(
            refusal,
            FindAssets::NotInNamedFolder { program: Program::Etcd, folder: folder.path().to_owned() }
        );
    }

    #[test]
    fn a_named_folder_goes_before_our_own_build() {
        let folder = tempfile::tempdir().expect("a folder");
        for program in Program::ALL {
            std::fs::write(folder.path().join(program.name()), "").expect("a file");
        }
        let found = Assets::find_with(Some(folder.path().into()));
        assert_eq!(found, Ok(Assets { folder: folder.path().to_owned(), end_with_stdin: false }));
    }
}
