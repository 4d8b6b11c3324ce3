//! What the metrics of all programs have in common.
//!
//! Each part registers its own metrics in the registry that it is given; the prefix comes from the program.

use std::time::Duration;

use prometheus::core::{Collector, Desc};
use prometheus::process_collector::ProcessCollector;
use prometheus::proto::{Counter, MetricFamily};
use prometheus::{IntGaugeVec, Opts, Registry};

use crate::clock;

/// A registry with the metrics of the process and `<prefix>build_info{version}`, which is always 1.
///
/// # Errors
/// The prefix is no metric name.
pub fn registry(prefix: &str) -> Result<Registry, prometheus::Error> {
    let registry = Registry::new();
    registry.register(Box::new(Process(ProcessCollector::for_self())))?;
    let help = "Always 1; the label tells the version of the program";
    let build_info = IntGaugeVec::new(Opts::new(format!("{prefix}build_info"), help), &["version"])?;
    build_info.with_label_values(&[crate::version()]).set(1);
    registry.register(Box::new(build_info))?;
    Ok(registry)
}

/// Registers a metric that was made, and hands it out.
///
/// # Errors
/// It could not be made, or one of its name is registered already.
pub fn registered<M: Collector + Clone + 'static>(
    registry: &Registry,
    metric: Result<M, prometheus::Error>,
) -> Result<M, prometheus::Error> {
    let metric = metric?;
    registry.register(Box::new(metric.clone()))?;
    Ok(metric)
}

/// The metrics of the process, with its CPU time to the nanosecond: the collector's own has whole seconds, of which a
/// rate over a minute says little.
struct Process(ProcessCollector);

impl Collector for Process {
    fn desc(&self) -> Vec<&Desc> {
        self.0.desc()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let mut families = self.0.collect();
        for family in families.iter_mut().filter(|family| family.name() == "process_cpu_seconds_total") {
            set(family, clock::cpu_time());
        }
        families
    }
}

fn set(family: &mut MetricFamily, time: Duration) {
    for metric in family.mut_metric() {
        let mut counter = Counter::default();
        counter.set_value(time.as_secs_f64());
        metric.set_counter(counter);
    }
}

#[cfg(test)]
mod tests {
    use prometheus::TextEncoder;

    use super::*;

    #[test]
    fn the_build_is_told_with_its_version() {
        let registry = registry("mcs_registry_").unwrap();
        let text = TextEncoder::new().encode_to_string(&registry.gather()).unwrap();
        let line = format!("mcs_registry_build_info{{version=\"{}\"}} 1", crate::version());
        assert!(text.lines().any(|found| found == line), "{text}");
        assert!(text.contains("process_resident_memory_bytes"), "{text}");
    }

    #[test]
    fn cpu_time_is_told_in_parts_of_a_second() {
        let registry = registry("mcs_registry_").unwrap();
        let told = || {
            let families = registry.gather();
            let cpu = families.iter().find(|family| family.name() == "process_cpu_seconds_total").unwrap();
            cpu.get_metric()[0].get_counter().get_value()
        };
        let before = clock::cpu_time().as_secs_f64();
        let told = told();
        let after = clock::cpu_time().as_secs_f64();
        assert!(before > 0.0 && (before..=after).contains(&told), "{before} {told} {after}");
    }
}
