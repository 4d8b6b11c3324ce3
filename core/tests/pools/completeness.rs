//! Errors, signs of life and silence of the watch.

use super::build::at;
use mcs_core::pools::Completeness::{self, Estimated, Exact};
use mcs_core::pools::completeness::SourceHealth;

fn seen(health: &SourceHealth, seconds: &[u64]) -> Vec<Completeness> {
    seconds.iter().map(|second| health.completeness(at(second * 1000))).collect()
}

fn failing_at(seconds: &[u64]) -> SourceHealth {
    let mut health = SourceHealth::default();
    for second in seconds {
        health.failed(at(second * 1000));
    }
    health
}

#[test]
fn a_view_is_estimated_once_errors_span_one_minute() {
    let health = failing_at(&[10, 30, 50]);
    assert_eq!(seen(&health, &[10, 50, 69, 70, 71]), [Exact, Exact, Exact, Estimated, Estimated]);
    let around = [69_999, 70_000, 70_001].map(|millis| health.completeness(at(millis)));
    assert_eq!(around, [Exact, Estimated, Estimated]);
}

#[test]
fn the_flag_is_set_and_cleared_by_timers() {
    let mut health = failing_at(&[10]);
    let mut deadlines = Vec::new();
    let mut now = at(10_000);
    while let Some(deadline) = health.poll_timeout(now) {
        assert!(deadline > now);
        now = deadline;
        health.handle_timeout(now);
        deadlines.push((now, health.completeness(now)));
    }
    assert_eq!(deadlines, [(at(70_000), Estimated), (at(130_000), Exact)]);
}

#[test]
fn two_minutes_without_an_error_end_the_run_and_an_error_after_them_starts_a_new_one() {
    let health = failing_at(&[0, 60, 100]);
    assert_eq!(seen(&health, &[100, 219, 220]), [Estimated, Estimated, Exact]);
    let around = [219_999, 220_000, 220_001].map(|millis| health.completeness(at(millis)));
    assert_eq!(around, [Estimated, Exact, Exact]);
    let health = failing_at(&[0, 60, 100, 220]);
    assert_eq!(seen(&health, &[220, 279, 280]), [Exact, Exact, Estimated]);
    let health = failing_at(&[0, 60, 100, 219]);
    assert_eq!(seen(&health, &[219, 338, 339]), [Estimated, Estimated, Exact]);
}

#[test]
fn a_sign_of_life_ends_the_run_at_once() {
    let mut health = failing_at(&[0, 30, 70]);
    health.alive();
    assert_eq!(seen(&health, &[70, 130]), [Exact, Exact]);
    assert_eq!(health.poll_timeout(at(70_000)), None);
}
