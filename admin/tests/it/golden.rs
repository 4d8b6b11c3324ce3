//! Goldens: files in `tests/golden`. With `UPDATE_GOLDENS=1` they are written instead of compared.

#![expect(clippy::unwrap_used, reason = "a golden that cannot be read or written fails its test")]

use std::fs;
use std::path::Path;

/// Compares with the golden `name`, and says how to take the change over.
pub(crate) fn assert_golden(name: &str, actual: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("UPDATE_GOLDENS").is_some() {
        fs::write(&path, actual).unwrap();
    }
    let golden = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        golden == actual,
        "{} differs; if the change is wanted, run the test with UPDATE_GOLDENS=1\n--- wanted\n{golden}--- got\n{actual}",
        path.display()
    );
}
