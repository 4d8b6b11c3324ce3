//! The closed sets that labels come from. What a caller sent is never a label: it is looked up here, and what is not
//! found is `other`.

use mcs_core::model::MemberState;

use crate::keeper::Condition;

/// The states of members.
pub(super) const STATES: [MemberState; 4] =
    [MemberState::Syncing, MemberState::Active, MemberState::Held, MemberState::Expired];

/// How the store may be.
pub(super) const CONDITIONS: [Condition; 3] = [Condition::Fine, Condition::Behind, Condition::Away];

/// Fields of a definition for which an export is refused.
pub(super) const EXPORT_FIELDS: &[&str] = &[
    "annotations",
    "endpoints",
    "exports",
    "ipFamilies",
    "labels",
    "name",
    "policies",
    "ports",
    "spec",
    OTHER,
];

/// Fields of an endpoint for which it is left out.
pub(super) const ENDPOINT_FIELDS: &[&str] =
    &["address", "endpoints", "hostname", "nodeName", "ports", "zone", OTHER];

const OTHER: &str = "other";

/// The label of a field as a refusal names it, e.g. `spec.ports[2].name`. What the merge treats as one is one.
pub(super) fn export_field(field: &str) -> &'static str {
    let root = match field.strip_prefix("spec.") {
        Some(within) => root(within),
        None => root(field),
    };
    known(
        EXPORT_FIELDS,
        match root {
            "exportedLabels" => "labels",
            "exportedAnnotations" => "annotations",
            "namespace" => "name",
            "sessionAffinity"
            | "sessionAffinityConfig"
            | "internalTrafficPolicy"
            | "trafficDistribution"
            | "type" => "policies",
            root => root,
        },
    )
}

/// The label of a field of an endpoint that was left out.
pub(super) fn endpoint_field(field: &str) -> &'static str {
    let root = root(field);
    known(ENDPOINT_FIELDS, if root == "addresses" { "address" } else { root })
}

/// The first part of a path of fields.
fn root(field: &str) -> &str {
    field.split(['.', '[']).next().unwrap_or_default()
}

fn known(set: &[&'static str], value: &str) -> &'static str {
    set.iter().find(|known| **known == value).copied().unwrap_or(OTHER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_that_a_caller_may_have_made_up_is_no_label() {
        let of = |fields: &[&str]| fields.iter().map(|field| export_field(field)).collect::<Vec<_>>();
        assert_eq!(of(&["ports[2].name", "spec.ports[0].port", "ports"]), ["ports"; 3]);
        assert_eq!(of(&["ipFamilies", "spec.ipFamilies[1]"]), ["ipFamilies"; 2]);
        assert_eq!(of(&["exportedLabels", "exportedLabels[a.b/c]"]), ["labels"; 2]);
        assert_eq!(of(&["exportedAnnotations", "namespace", "name"]), ["annotations", "name", "name"]);
        assert_eq!(
            of(&[
                "sessionAffinityConfig.clientIP.timeoutSeconds",
                "trafficDistribution",
                "spec.type",
                "spec.sessionAffinity",
                "spec.internalTrafficPolicy",
            ]),
            ["policies"; 5]
        );
        assert_eq!(of(&["spec", "exports", "endpoints.groups[0].family"]), ["spec", "exports", "endpoints"]);
        assert_eq!(of(&["leaf", "act", "", "[", "x{y=\"z\"}", "spec."]), ["other"; 6]);
        let dropped =
            ["addresses", "address", "hostname", "zone", "nodeName", "ports[0].name", "endpoints", "x"];
        assert_eq!(
            dropped.map(endpoint_field),
            ["address", "address", "hostname", "zone", "nodeName", "ports", "endpoints", "other"]
        );
    }
}
