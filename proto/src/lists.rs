//! Entries of a list that were told in several pieces, since what would make a message too large, endpoints mostly, follows
//! in further entries of the same Service.

use crate::pb;

/// Adds a piece of an export: to the last entry when it goes on with it, else as an entry of its own.
pub fn join_export(exports: &mut Vec<pb::Export>, next: pb::Export) {
    match exports.last_mut() {
        Some(last) if last.key == next.key && last.cluster == next.cluster => {
            join_endpoints(&mut last.endpoints, next.endpoints);
        }
        _ => exports.push(next),
    }
}

/// Adds a piece of an import: to the last entry when it goes on with it, else as an entry of its own.
pub fn join_import(imports: &mut Vec<pb::Import>, next: pb::Import) {
    let Some(last) = imports.last_mut().filter(|last| last.key == next.key) else {
        imports.push(next);
        return;
    };
    last.participants.extend(next.participants);
    for part in next.parts {
        match last.parts.last_mut() {
            Some(known) if known.cluster == part.cluster => {
                join_endpoints(&mut known.endpoints, part.endpoints)
            }
            _ => last.parts.push(part),
        }
    }
}

fn join_endpoints(known: &mut Option<pb::EndpointSet>, more: Option<pb::EndpointSet>) {
    let Some(more) = more else { return };
    let known = known.get_or_insert_default();
    known.more = more.more;
    for group in more.groups {
        match known.groups.last_mut() {
            Some(last) if last.family == group.family && last.ports == group.ports => {
                last.endpoints.extend(group.endpoints);
            }
            _ => known.groups.push(group),
        }
    }
}
