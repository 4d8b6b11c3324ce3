//! What the metrics of all programs have in common.
//!
//! Each part registers its own metrics in the registry that it is given; the prefix comes from the program.

use prometheus::process_collector::ProcessCollector;
use prometheus::{IntGaugeVec, Opts, Registry};

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
}
