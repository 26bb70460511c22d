//! The spans of log lines: `session > rank > batch > fetch | decode`. A log line inside them carries their ids.
//!
//! The spans have the level ERROR, so that a warning carries its ids whatever the log's filter shows. Only a fetch has
//! the level DEBUG, as a batch of small records can have hundreds. With a log, a batch makes two or three spans, which
//! take 1 to 2 microseconds each; samples make none. `benches/feed.rs` compares a feed without a log and with one.
//! Numbers in spans are signed, because OpenTelemetry has no unsigned ones.

use std::fmt;

use spdl_types::SessionId;
use tracing::{Span, debug_span, error_span};

/// Returns whether a span is that of a batch, or lies inside one.
#[must_use]
pub fn is_of_batch(span: &tracing::Metadata<'_>) -> bool {
    span.target() == module_path!() && !["session", "rank"].contains(&span.name())
}

/// Returns the span of everything that happens for `rank`, inside the span of its session. `session` is `None` while
/// the rank joins.
#[must_use]
pub fn rank(session: Option<SessionId>, job: &str, rank: u32) -> Span {
    let session = error_span!(parent: None, "session", session = session.map(|id| id.0), job);
    error_span!(parent: &session, "rank", rank)
}

/// Returns the span of the batch at this position, inside the current span.
#[must_use]
pub fn batch(at: impl fmt::Display) -> Span {
    error_span!("batch", batch = %at)
}

/// Returns the span of a read of one block, or of parts of it, inside the current span.
#[must_use]
pub fn fetch(shard: &str, block: u32) -> Span {
    debug_span!("fetch", shard, block = i64::from(block))
}

/// Returns the span in which this many samples of a batch are decoded, inside the current span.
#[must_use]
pub fn decode(samples: usize) -> Span {
    error_span!("decode", samples = samples as i64)
}
