//! Requests and calls to the store: each is observed when it is over.

use mcs_core::time::Timestamp;
use tonic::Code;

use super::Metrics;
use crate::error::Error;

impl Metrics {
    /// A call to the store begins.
    pub(crate) fn begin_store_call(&self, operation: &'static str) -> StoreCall {
        StoreCall { metrics: self.clone(), operation, began: self.clock.elapsed(), outcome: CANCELLED }
    }

    /// A request begins.
    pub(crate) fn begin(&self, transport: &'static str, method: &'static str) -> Request {
        let began = self.clock.elapsed();
        Request { metrics: self.clone(), transport, method, began, code: Code::Cancelled }
    }

    /// A request ends with this error, which may tell of a limit.
    pub(crate) fn failed(&self, error: Error) -> Error {
        if let Some(limit) = error.limit() {
            self.limits.with_label_values(&[limit.name()]).inc();
        }
        error
    }
}

/// A request under way. It is observed when it is dropped, as cancelled unless it ended.
pub(crate) struct Request {
    metrics: Metrics,
    transport: &'static str,
    method: &'static str,
    began: Timestamp,
    code: Code,
}

impl Request {
    /// It ended with this code.
    pub(crate) fn ended(mut self, code: Code) {
        self.code = code;
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        let Metrics { requests, clock, .. } = &self.metrics;
        let seconds = clock.elapsed().since(self.began).as_secs_f64();
        let code = format!("{:?}", self.code);
        requests.with_label_values(&[self.transport, self.method, &code]).observe(seconds);
    }
}

/// The outcome of a call to the store that was given up.
const CANCELLED: &str = "cancelled";

/// A call to the store under way. It is observed when it is dropped, as cancelled unless it ended.
pub(crate) struct StoreCall {
    metrics: Metrics,
    operation: &'static str,
    began: Timestamp,
    outcome: &'static str,
}

impl StoreCall {
    /// It ended so.
    pub(crate) fn ended(mut self, outcome: &'static str) {
        self.outcome = outcome;
    }
}

impl Drop for StoreCall {
    fn drop(&mut self) {
        let Metrics { store_calls, clock, .. } = &self.metrics;
        let seconds = clock.elapsed().since(self.began).as_secs_f64();
        store_calls.with_label_values(&[self.operation, self.outcome]).observe(seconds);
    }
}
