//! What a cluster tells of itself with its renewals, for people. It is bounded and cut rather than refused where it is
//! too much, since a cluster must not lose its lease over it; a name that is none is refused like any other.

use mcs_core::ids::ServiceKey;
use mcs_core::limits::{MAX_HELD_NAMED, MAX_REFUSED_NAMED};
use mcs_core::model::{HeldImports, RefusedExports, Report};
use mcs_core::text::shown;
use mcs_core::validate::Refusal;

use super::read_key;
use crate::pb;

/// The most bytes of a field or a problem, about: they are a registry's own words, which are shorter.
const MAX_WORDS: usize = 500;

/// What a renewal says; nothing is the same as none. Of more names than are kept the first are.
///
/// # Errors
/// When a name that is kept is invalid.
pub fn read_report(
    held: Option<pb::HeldImports>,
    refused: Option<pb::RefusedExports>,
) -> Result<Report, Refusal> {
    Ok(Report { held_imports: read_held(held)?, refused_exports: read_refused(refused)? })
}

fn read_held(held: Option<pb::HeldImports>) -> Result<HeldImports, Refusal> {
    let pb::HeldImports { total, first } = held.unwrap_or_default();
    let key = |(place, key): (usize, &pb::ServiceKey)| {
        ServiceKey::new(&key.namespace, &key.name)
            .map_err(|invalid| Refusal::from(invalid).within(&format!("heldImports.first[{place}]")))
    };
    let first = first.iter().take(MAX_HELD_NAMED).enumerate().map(key).collect::<Result<_, _>>()?;
    Ok(HeldImports { total, first })
}

fn read_refused(refused: Option<pb::RefusedExports>) -> Result<RefusedExports, Refusal> {
    let pb::RefusedExports { total, first } = refused.unwrap_or_default();
    let export = |(place, export): (usize, &pb::RefusedExport)| {
        let key = read_key(export.key.as_ref())
            .map_err(|refusal| refusal.within(&format!("refusedExports.first[{place}]")))?;
        let words = |text: &str| shown(text, MAX_WORDS);
        Ok::<_, Refusal>((key, Refusal::new(words(&export.field), words(&export.problem))))
    };
    let first = first.iter().take(MAX_REFUSED_NAMED).enumerate().map(export).collect::<Result<_, _>>()?;
    Ok(RefusedExports { total, first })
}

/// What is told of held imports; nothing where there are none.
pub fn held_imports(held: &HeldImports) -> Option<pb::HeldImports> {
    let told = || pb::HeldImports { total: held.total, first: held.first.iter().map(Into::into).collect() };
    (held.total > 0).then(told)
}

/// What is told of refused exports; nothing where there are none.
pub fn refused_exports(refused: &RefusedExports) -> Option<pb::RefusedExports> {
    let export = |(key, Refusal { field, problem }): &(ServiceKey, Refusal)| pb::RefusedExport {
        key: Some(key.into()),
        field: field.clone(),
        problem: problem.clone(),
    };
    let told =
        || pb::RefusedExports { total: refused.total, first: refused.first.iter().map(export).collect() };
    (refused.total > 0).then(told)
}
