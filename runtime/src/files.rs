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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_raised_to_the_most_that_is_allowed() {
        let told = raise_open_files();
        let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
        assert_eq!(current, maximum);
        assert_eq!(current.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap()), told);
    }
}
