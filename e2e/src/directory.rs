//! The folder of one cluster: credentials, etcd's data, logs.
//!
//! Under `target/clusters`. Removed when the cluster ends, unless `KEEP_CLUSTERS` is set. A process that is
//! killed, or keeps its clusters in a static, leaves its folders: the next one that starts a cluster removes
//! them. Whose owner lives is known by a lock, which the kernel frees with the owner. Beside it in `target` are the
//! folders of what is to be kept, which [`emptied`] and [`copy_logs`] fill.

use std::{
    env,
    fs::{self, File, TryLockError},
    io::{self, Write},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

use crate::assets::workspace_root;

/// When set, folders of clusters are kept and their paths printed.
const KEEP_VARIABLE: &str = "KEEP_CLUSTERS";
const LOCK: &str = "lock";

/// A folder that only this process uses.
#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    keep: bool,
    _lock: File,
}

impl Directory {
    /// Makes a folder whose name starts with `name`.
    pub(crate) fn create(name: &str) -> Result<Self> {
        let parent = workspace_root().join("target/clusters");
        Self::create_in(&parent, name, env::var_os(KEEP_VARIABLE).is_some())
            .with_context(|| format!("making a folder for cluster {name} in {}", parent.display()))
    }

    /// Makes a folder in `parent`, which has only such folders; `keep` leaves it there.
    pub(crate) fn create_in(parent: &Path, name: &str, keep: bool) -> Result<Self> {
        fs::create_dir_all(parent)?;
        // One at a time, so that no folder is seen between its making and its locking.
        let guard = File::create(parent.join(LOCK))?;
        guard.lock()?;
        if !keep {
            remove_abandoned(parent)?;
        }
        let path = tempfile::Builder::new().prefix(&format!("{name}-")).tempdir_in(parent)?.keep();
        let lock = File::create(path.join(LOCK))?;
        lock.lock()?;
        if keep {
            writeln!(io::stderr(), "cluster {name} keeps its folder {}", path.display())?;
        }
        Ok(Self { path, keep, _lock: lock })
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        if !self.keep {
            // What is left, the next process removes.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

/// The folder `name` in `target`, for what outlives the programs: there and empty.
pub(crate) fn emptied(name: &str) -> Result<PathBuf> {
    let folder = workspace_root().join("target").join(name);
    match fs::remove_dir_all(&folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(error).with_context(|| format!("emptying {}", folder.display()));
        }
        _ => {}
    }
    fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
    Ok(folder)
}

/// Copies the logs in the folder `from` into the folder `to`, which is made.
pub(crate) fn copy_logs(from: &Path, to: &Path) -> Result<()> {
    let copy = || {
        fs::create_dir_all(to)?;
        for entry in fs::read_dir(from)? {
            let entry = entry?;
            if entry.path().extension().is_some_and(|extension| extension == "log") {
                fs::copy(entry.path(), to.join(entry.file_name()))?;
            }
        }
        io::Result::Ok(())
    };
    copy().with_context(|| format!("keeping the logs of {}", from.display()))
}

fn remove_abandoned(parent: &Path) -> io::Result<()> {
    for entry in fs::read_dir(parent)? {
        let path = entry?.path();
        let Ok(lock) = File::open(path.join(LOCK)) else { continue };
        match lock.try_lock() {
            // What resists, since a dying etcd still writes, is left to the next process.
            Ok(()) => drop(fs::remove_dir_all(&path)),
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_of_a_process_that_was_killed_is_removed_by_the_next() {
        let parent = tempfile::tempdir().expect("a folder");
        let abandoned = parent.path().join("east-1");
        fs::create_dir(&abandoned).expect("a folder");
        File::create(abandoned.join(LOCK)).expect("a lock that nobody holds");
        let living = Directory::create_in(parent.path(), "west", false).expect("a folder");
        let second = Directory::create_in(parent.path(), "east", false).expect("a folder");
        let exist = [abandoned.as_path(), living.path(), second.path()].map(Path::exists);
        assert_eq!(exist, [false, true, true]);
    }

    #[test]
    fn a_folder_goes_with_its_cluster_unless_it_is_to_be_kept() {
        let parent = tempfile::tempdir().expect("a folder");
        let paths = [false, true].map(|keep| {
            let directory = Directory::create_in(parent.path(), "east", keep).expect("a folder");
            directory.path().to_owned()
        });
        assert_eq!(paths.map(|path| path.exists()), [false, true]);
    }
}
