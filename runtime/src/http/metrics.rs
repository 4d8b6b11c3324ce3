//! What is counted of connections. Labels come from closed sets: ports of the program, causes.

use prometheus::{IntCounterVec, IntGaugeVec, Opts, Registry};

/// Why the server closed a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// There was no room for it.
    Full,
    /// It brought no request in time.
    NoRequest,
    /// It took nothing of what it was sent.
    Stalled,
    /// Its frames asked for nothing.
    Flood,
    /// It did not end when it was old.
    Age,
    /// It spoke another protocol than the port.
    Protocol,
}

impl Cause {
    const ALL: [Self; 6] =
        [Self::Full, Self::NoRequest, Self::Stalled, Self::Flood, Self::Age, Self::Protocol];

    const fn label(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::NoRequest => "no_request",
            Self::Stalled => "stalled",
            Self::Flood => "flood",
            Self::Age => "age",
            Self::Protocol => "protocol",
        }
    }
}

/// Counts connections. Cheap to clone; the default counts nothing.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    counted: Option<Counted>,
}

#[derive(Clone, Debug)]
struct Counted {
    open: IntGaugeVec,
    closed: IntCounterVec,
}

impl Metrics {
    /// Registers the metrics, for all ports of a program.
    ///
    /// # Errors
    /// The prefix makes no names of metrics, or they are registered.
    pub fn register(registry: &Registry, prefix: &str, ports: &[&str]) -> Result<Self, prometheus::Error> {
        let open = Opts::new(format!("{prefix}connections"), "Connections that are open");
        let open = IntGaugeVec::new(open, &["port"])?;
        let closed = Opts::new(
            format!("{prefix}connections_closed_total"),
            "Connections that were closed for what the client did, or for want of room",
        );
        let closed = IntCounterVec::new(closed, &["port", "cause"])?;
        registry.register(Box::new(open.clone()))?;
        registry.register(Box::new(closed.clone()))?;
        for port in ports {
            open.with_label_values(&[port]);
            for cause in Cause::ALL {
                closed.with_label_values(&[*port, cause.label()]);
            }
        }
        Ok(Self { counted: Some(Counted { open, closed }) })
    }

    /// A connection is open until the guard is dropped.
    pub(super) fn opened(&self, port: &'static str) -> Open {
        let gauge = self.counted.as_ref().map(|counted| counted.open.with_label_values(&[port]));
        if let Some(gauge) = &gauge {
            gauge.inc();
        }
        Open(gauge)
    }

    /// A connection is closed for this.
    pub(super) fn closed(&self, port: &'static str, cause: Cause) {
        if let Some(counted) = &self.counted {
            counted.closed.with_label_values(&[port, cause.label()]).inc();
        }
    }
}

/// A connection that is counted as open.
pub(super) struct Open(Option<prometheus::IntGauge>);

impl Drop for Open {
    fn drop(&mut self) {
        if let Some(gauge) = &self.0 {
            gauge.dec();
        }
    }
}
