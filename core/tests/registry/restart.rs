//! A registry that has just started: it says what it does not know, and takes nothing away.

use crate::fixture::{Fixture, cluster, put, sum_of};
use mcs_core::registry::Op;
use mcs_core::time::Timestamp;

fn exports(third: u8) -> Vec<Op> {
    (0..5).map(|number| put(&format!("svc-{number}"), &[&format!("10.{third}.0.{number}")])).collect()
}

/// O49: members return at their own pace; nothing is told as gone, and each is whole only when its sync has ended.
#[test]
fn o49_a_fresh_registry_says_what_it_does_not_know_and_removes_nothing() {
    let mut fixture = Fixture::new();
    let mut told = Vec::new();
    for (seconds, name, third) in [(2, "alpha", 1), (9, "beta", 2), (25, "gamma", 3)] {
        fixture.until(seconds);
        assert!(!fixture.registry.is_complete(fixture.now()));
        let ops = exports(third);
        fixture.register(name, "4.1", sum_of(&ops)).expect("free id");
        told.extend(fixture.told());
        fixture.begin(name, "4.2");
        for op in ops.clone() {
            fixture.wrote(name, "4.2", vec![op]);
            assert_eq!(whole(&fixture, name), Some(false));
        }
        let named: Vec<String> = ops.iter().map(|op| op.key().name.to_string()).collect();
        let named: Vec<&str> = named.iter().map(String::as_str).collect();
        assert_eq!(fixture.end(name, "4.2", &named), Ok(0));
        told.extend(fixture.told());
        assert_eq!(whole(&fixture, name), Some(true));
    }
    fixture.renewing_until(29, &["alpha", "beta", "gamma"]);
    assert!(!fixture.registry.is_complete(Timestamp::from_millis(29_999)));
    fixture.renewing_until(90, &["alpha", "beta", "gamma"]);
    assert!(fixture.registry.is_complete(fixture.now()));
    told.extend(fixture.told());
    assert_eq!(told.iter().filter(|line| line.ends_with("gone")).count(), 0, "{told:#?}");
    assert_eq!(fixture.snapshot().len(), 3 + 5 + 15);
}

fn whole(fixture: &Fixture, name: &str) -> Option<bool> {
    fixture.registry.member(&cluster(name)).map(mcs_core::registry::Member::is_whole)
}
