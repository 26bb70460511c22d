//! What limits a rank, what comes next, and what a change would give: from what was measured in a window of some seconds
//! to one sentence. No I/O and no clock; nothing here knows why a pipeline is slow except from these figures.
//!
//! - [`WorkerWindow`] and [`RankWindow`] hold the measurements.
//! - A [`Term`] is the rate in samples per second that one resource allows the rank. The smallest term is the rank's
//!   [`Limit`], and the next one bounds what any remedy gives.
//! - A [`Change`] asks what the rate would be with other resources.
//! - [`session_gains`] asks that for twice as much of each resource.
//! - [`diagnose`] finds all of that for one rank, and [`Diagnosis::verdict`] says it in one sentence.

mod diagnosis;
mod gains;
mod session;
mod terms;
mod verdict;
mod window;

#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;

pub use diagnosis::{Change, Diagnosis, diagnose};
pub use gains::{Remedy, session_gains};
pub use session::session_verdict;
pub use terms::{Limit, Term};
pub use window::{RankWindow, WorkerWindow};
