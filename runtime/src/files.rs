//! How many files a process may have open, connections among them.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the limit of open files to the most that the system allows, and says what it is then. Systems give a process
/// little at first for the sake of programs that use `select`.
pub fn raise_open_files() -> usize {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raised = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    if let Err(error) = &raised {
        tracing::warn!(%error, ?current, ?maximum, "the limit of open files stays as it is");
    }
    let limit = if raised.is_ok() { maximum } else { current };
    limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX))
}

/// How many of `wanted` connections each of `ports` may have where so many files may be open: `others` are left for
/// what else is open, or half of what there is.
pub fn fitting_connections(wanted: usize, ports: usize, others: usize, open_files: usize) -> usize {
    let fitting = (open_files - others.min(open_files / 2)) / ports.max(1);
    if wanted <= fitting {
        return wanted;
    }
    tracing::warn!(
        open_files,
        max_connections = wanted,
        fitting,
        "too few files may be open for --max-connections: fewer are taken; raise the limit of open files (ulimit -n)"
    );
    fitting
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_connections_are_taken_than_files_may_be_open() {
        let most = |open_files| fitting_connections(1_000, 2, 512, open_files);
        assert_eq!([most(2_513), most(2_512), most(2_511), most(2_510)], [1_000, 1_000, 999, 999]);
        assert_eq!([most(usize::MAX), most(1_024), most(256)], [1_000, 256, 64]);
        assert_eq!(fitting_connections(1_000, 1, 512, 1_511), 999);
    }

    #[test]
    fn the_limit_is_raised_to_the_most_that_is_allowed() {
        let told = raise_open_files();
        let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
        assert_eq!(current, maximum);
        assert_eq!(current.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap()), told);
    }
}
