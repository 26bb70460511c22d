//! Forwards log lines of the Rust crates to Python's `logging`. A thread that logs only appends to a queue, so it may
//! hold locks and need not hold the interpreter. One thread delivers the lines, and ends before the interpreter does.

use std::{
    collections::VecDeque,
    fmt::Write,
    sync::{
        LazyLock,
        atomic::{AtomicU8, Ordering},
    },
    thread::JoinHandle,
};

use parking_lot::{Condvar, Mutex};
use pyo3::prelude::*;
use tracing::{
    Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id},
};
use tracing_subscriber::{
    layer::{Context, Layer, SubscriberExt},
    registry::LookupSpan,
    util::SubscriberInitExt,
};

/// The most lines that wait to be delivered. Lines beyond that are dropped and counted.
const MAX_WAITING: usize = 1024;

/// The lowest level that is delivered, in Python's numbers.
static LEVEL: AtomicU8 = AtomicU8::new(WARNING);
const WARNING: u8 = 30;

static QUEUE: LazyLock<LogQueue> = LazyLock::new(LogQueue::default);

#[derive(Default)]
struct LogQueue {
    waiting: Mutex<WaitingLine>,
    changed: Condvar,
}

#[derive(Default)]
struct WaitingLine {
    lines: VecDeque<LogLine>,
    dropped: u64,
    /// The thread, and the process that it belongs to: a forked child has none.
    thread: Option<(u32, JoinHandle<()>)>,
    is_over: bool,
}

struct LogLine {
    /// The level in Python's numbers.
    level: u8,
    /// The logger's name.
    logger: String,
    text: String,
}

struct ToPython;

/// The fields of a span as text. Every line inside the span ends with them.
struct SpanFields(String);

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for ToPython {
    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        let level = LEVEL.load(Ordering::Relaxed);
        // Of the libraries that the crates use, only warnings and errors are of interest.
        let least = if metadata.target().starts_with("spdl_") { level } else { level.max(WARNING) };
        // `rustls_platform_verifier` logs each certificate that it rejects. Our own errors explain that better.
        python_level(*metadata.level()) >= least && !metadata.target().starts_with("rustls_platform_verifier")
    }

    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut text = Text::default();
        attributes.record(&mut text);
        if let Some(span) = context.span(id) {
            span.extensions_mut().insert(SpanFields(text.fields));
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let metadata = event.metadata();
        let mut text = Text::default();
        event.record(&mut text);
        for span in context.event_scope(event).into_iter().flat_map(|scope| scope.from_root()) {
            if let Some(SpanFields(fields)) = span.extensions().get() {
                text.fields += fields;
            }
        }
        let logger = format!("spdl_cluster.{}", metadata.target().trim_start_matches("spdl_").replace("::", "."));
        QUEUE.push(LogLine { level: python_level(*metadata.level()), logger, text: text.message + &text.fields });
    }
}

/// The message and the fields, which follow it.
#[derive(Default)]
struct Text {
    message: String,
    fields: String,
}

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }
}

const fn python_level(level: Level) -> u8 {
    match level {
        Level::ERROR => 40,
        Level::WARN => WARNING,
        Level::INFO => 20,
        Level::DEBUG | Level::TRACE => 10,
    }
}

impl LogQueue {
    fn push(&self, line: LogLine) {
        let mut waiting = self.waiting.lock();
        let is_alive = waiting.thread.as_ref().is_some_and(|(process, _)| *process == std::process::id());
        if !is_alive || waiting.is_over {
            return;
        }
        if waiting.lines.len() < MAX_WAITING {
            waiting.lines.push_back(line);
        } else {
            waiting.dropped += 1;
        }
        self.changed.notify_one();
    }

    /// Delivers lines until the log is stopped and no line is left.
    fn deliver_all(&self, deliver: &Py<PyAny>) {
        loop {
            let (lines, dropped, is_over) = {
                let mut waiting = self.waiting.lock();
                while waiting.lines.is_empty() && !waiting.is_over {
                    self.changed.wait(&mut waiting);
                }
                (std::mem::take(&mut waiting.lines), std::mem::take(&mut waiting.dropped), waiting.is_over)
            };
            let more = (dropped > 0).then(|| LogLine {
                level: WARNING,
                logger: "spdl_cluster".to_owned(),
                text: format!("{dropped} more lines were dropped: they came faster than they could be logged"),
            });
            let delivered = Python::try_attach(|py| {
                for LogLine { level, logger, text } in lines.into_iter().chain(more) {
                    if let Err(error) = deliver.call1(py, (level, logger, text)) {
                        error.write_unraisable(py, None);
                    }
                }
            });
            if is_over || delivered.is_none() {
                return;
            }
        }
    }
}

/// Delivers log lines to `deliver(level, logger, text)` from now on, unless this process has another subscriber
/// already.
#[pyfunction]
pub(crate) fn start_log(deliver: Py<PyAny>) {
    if tracing_subscriber::registry().with(ToPython).try_init().is_err() {
        return;
    }
    let thread = std::thread::Builder::new().name("spdl-log".into()).spawn(move || QUEUE.deliver_all(&deliver));
    QUEUE.waiting.lock().thread = thread.ok().map(|thread| (std::process::id(), thread));
}

/// Sets the lowest level that is delivered, in Python's numbers.
#[pyfunction]
pub(crate) fn set_log_level(level: u8) {
    if LEVEL.swap(level, Ordering::Relaxed) != level {
        tracing::callsite::rebuild_interest_cache();
    }
}

/// Delivers the lines that are left and stops.
#[pyfunction]
pub(crate) fn stop_log(py: Python<'_>) {
    py.detach(|| {
        let thread = {
            let mut waiting = QUEUE.waiting.lock();
            waiting.is_over = true;
            QUEUE.changed.notify_one();
            waiting.thread.take()
        };
        match thread {
            Some((process, thread)) if process == std::process::id() => drop(thread.join()),
            // The thread belongs to the parent process.
            thread => std::mem::forget(thread),
        }
    });
}
