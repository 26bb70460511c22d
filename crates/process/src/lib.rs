//! What the programs of a cluster have in common: the log on standard error, spans for a collector of OpenTelemetry,
//! signals to stop, settings of the allocator, the line that reports open ports, a listener for HTTP, locks of files, and exit codes.

pub mod allocator;
pub mod http;
pub mod lock;
mod otlp;
mod printable;

pub use otlp::{ExporterBuildError, Exporting, SpanExport, describe_batch};
pub use printable::{Printable, is_command};

use std::{
    fmt,
    io::{self, IsTerminal, Write},
    process::ExitCode,
};

use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::Subscriber;
use tracing_subscriber::{EnvFilter, Layer, layer::SubscriberExt, registry::LookupSpan, util::SubscriberInitExt};

/// Writes this process's log to standard error. `SPDL_LOG` chooses what is logged, or else `default`. There are no
/// colours in files and pipes.
///
/// # Panics
/// If this process has a log already.
pub fn log_to_stderr(default: &str) {
    tracing_subscriber::registry().with(stderr_layer(default)).init();
}

/// Writes this process's log to standard error as [`log_to_stderr`] does, and sends spans to a collector of OpenTelemetry.
///
/// # Errors
/// If the collector's URL, or a variable with the settings of the export, is invalid. There is no log then.
///
/// # Panics
/// If this process has a log already.
pub fn log_and_export(default: &str, export: &SpanExport) -> Result<Exporting, ExporterBuildError> {
    let (spans, exporting) = export.layer()?;
    tracing_subscriber::registry().with(stderr_layer(default)).with(spans).init();
    Ok(exporting)
}

fn stderr_layer<S: Subscriber + for<'span> LookupSpan<'span>>(default: &str) -> impl Layer<S> + use<S> {
    // This library logs each certificate that it rejects; our own errors report that with advice.
    let quiet = || EnvFilter::new(format!("{default},rustls_platform_verifier=off"));
    let filter = EnvFilter::try_from_env("SPDL_LOG").unwrap_or_else(|_| quiet());
    // A log whose reader is gone, or a full disk, must not end the process.
    let layer = tracing_subscriber::fmt::layer().with_writer(io::stderr).log_internal_errors(false);
    layer.with_ansi(io::stderr().is_terminal()).with_filter(filter)
}

/// Prints on standard error why a program ends, and what the user can do about it. Returns its exit code.
pub fn fail(error: impl fmt::Display, hint: Option<impl fmt::Display>) -> ExitCode {
    // Standard error may be closed; then only the exit code reports the failure.
    let mut stderr = io::stderr().lock();
    let _ = writeln!(stderr, "error: {}", Printable(error));
    if let Some(hint) = hint {
        let _ = writeln!(stderr, "hint: {}", Printable(hint));
    }
    ExitCode::FAILURE
}

/// Prints `line` on standard output for the parent process. Ignores errors, because the parent need not read it.
pub fn announce(line: impl fmt::Display) {
    let mut stdout = io::stdout();
    let _ = writeln!(stdout, "{line}").and_then(|()| stdout.flush());
}

/// SIGTERM and SIGINT, which ask a server to stop.
#[derive(Debug)]
pub struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignals {
    /// Starts to handle the signals, which no longer end the process from then on.
    ///
    /// # Errors
    /// If the system cannot set a handler.
    pub fn listen() -> io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// Waits for the next signal and returns its name. Dropping the future loses no signal.
    pub async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}
