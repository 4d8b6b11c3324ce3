//! What the metrics of all programs have in common (registry contract: metrics).
//!
//! Each part registers its own metrics in the registry that it is given; the prefix comes from the program.

use std::sync::Arc;

use mcs_core::time::{Clock, Timestamp};
use prometheus::process_collector::ProcessCollector;
use prometheus::{Histogram, IntGaugeVec, Opts, Registry};

/// A registry with the metrics of the process and `<prefix>build_info{version}`, which is always 1.
///
/// # Errors
/// The prefix is no metric name.
pub fn registry(prefix: &str) -> Result<Registry, prometheus::Error> {
    let registry = Registry::new();
    registry.register(Box::new(ProcessCollector::for_self()))?;
    let help = "Always 1; the label tells the version of the program";
    let build_info = IntGaugeVec::new(Opts::new(format!("{prefix}build_info"), help), &["version"])?;
    build_info.with_label_values(&[crate::version()]).set(1);
    registry.register(Box::new(build_info))?;
    Ok(registry)
}

/// Measures from its making to its drop, whichever way the measured code ends, in seconds.
pub struct Timer {
    histogram: Histogram,
    clock: Arc<dyn Clock>,
    start: Timestamp,
}

impl Timer {
    /// Starts to measure; the duration is observed in `histogram`.
    pub fn start(histogram: Histogram, clock: Arc<dyn Clock>) -> Self {
        let start = clock.elapsed();
        Self { histogram, clock, start }
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        self.histogram.observe(self.clock.elapsed().since(self.start).as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use mcs_core::time::ManualClock;
    use prometheus::{HistogramOpts, TextEncoder};

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
    fn a_timer_observes_when_it_is_dropped() {
        let clock = Arc::new(ManualClock::default());
        let histogram = Histogram::with_opts(HistogramOpts::new("seconds", "test")).unwrap();
        let timer = Timer::start(histogram.clone(), clock.clone());
        clock.advance(Duration::from_millis(1500));
        drop(timer);
        assert_eq!((histogram.get_sample_count(), histogram.get_sample_sum()), (1, 1.5));
    }
}
