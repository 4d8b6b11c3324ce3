//! What a registry in this process logs, as one text a line.
//!
//! One subscriber serves all tests of the process and sorts lines by thread. A subscriber a test would miss lines:
//! tracing asks whether anybody wants a kind of line once, on the thread that comes there first.

use std::cell::RefCell;
use std::fmt::{Debug, Write};
use std::rc::Rc;
use std::sync::Once;

use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, SubscriberExt};

use crate::started::LIMIT;

thread_local! {
    static LINES: RefCell<Option<Rc<RefCell<Vec<String>>>>> = const { RefCell::new(None) };
}

/// Collects what the tasks of a test log; they run on the test's thread.
pub(crate) struct Logged {
    lines: Rc<RefCell<Vec<String>>>,
}

impl Logged {
    /// From now on.
    pub(crate) fn from_now_on() -> Self {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| {
            let subscriber = tracing_subscriber::registry().with(Sorter);
            tracing::subscriber::set_global_default(subscriber).unwrap();
        });
        let lines = Rc::default();
        LINES.set(Some(Rc::clone(&lines)));
        Self { lines }
    }

    /// Waits until as many lines were logged since the last look, and takes all that were: level, message, and the fields
    /// but for the clusterset.
    pub(crate) async fn take(&self, count: usize) -> Vec<String> {
        let logged = async {
            while self.lines.borrow().len() < count {
                tokio::task::yield_now().await;
            }
        };
        let enough = tokio::time::timeout(LIMIT, logged).await.is_ok();
        let lines = self.lines.take();
        assert!(enough, "{count} lines were expected: {lines:#?}");
        lines
    }
}

impl Drop for Logged {
    fn drop(&mut self) {
        LINES.set(None);
    }
}

struct Sorter;

impl<S: Subscriber> Layer<S> for Sorter {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let Some(lines) = LINES.with_borrow(Option::clone) else { return };
        if event.metadata().target().starts_with("mcs_registry") {
            let mut line = Line::default();
            event.record(&mut line);
            lines.borrow_mut().push(format!("{} {}{}", event.metadata().level(), line.message, line.fields));
        }
    }
}

#[derive(Default)]
struct Line {
    message: String,
    fields: String,
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        match field.name() {
            "message" => self.message = format!("{value:?}"),
            "clusterset" => assert_eq!(format!("{value:?}"), "prod"),
            name => write!(self.fields, " {name}={value:?}").unwrap(),
        }
    }
}
