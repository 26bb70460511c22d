//! What limits a rank, what limits it next, and what a change would give: turns the measurements of some seconds into
//! one sentence. No I/O and no clock; nothing here knows why a pipeline is slow except from these figures.
//!
//! - [`WorkerWindow`] and [`RankWindow`] hold the measurements; a [`WorkerTotalsHistory`] makes the first from totals.
//! - A [`Term`] is the rate in samples per second that one resource allows the rank. The smallest term is the rank's
//!   [`Limit`], or the cause why that resource is short, and the next one bounds what any remedy gives.
//! - A [`ResourceChange`] describes other resources, for a prediction of the rate.
//! - [`session_gains`] predicts the rate for twice as much of each resource.
//! - A [`CoreDemand`] adds up the cores that ranks need to not wait for CPU.
//! - [`diagnose`] finds all of that for one rank, and [`Diagnosis::verdict`] returns it as one sentence.
//! - [`rates`] are what stages did in the last seconds, and [`tuning`] changes the values that a worker tunes by
//!   itself.

mod cache;
mod cause;
mod connections;
mod counts;
mod demand;
mod diagnosis;
mod gains;
mod limit;
pub mod rates;
pub mod recent;
mod session;
mod terms;
pub mod tuning;
mod verdict;
mod window;
mod words;

#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;

pub use counts::{
    CacheStats, CountMetric, CountUnit, MAX_CONNECTIONS, ReceiveRates, ReceiveStats, SlowObject, Stall, StoreStats,
    Transport,
};
pub use demand::{CORES_USED, CoreDemand};
pub use diagnosis::{Diagnosis, Prediction, ResourceChange, diagnose};
pub use gains::{LimitRemedy, session_gains};
pub use limit::Limit;
pub use session::session_verdict;
pub use terms::Term;
pub use verdict::CORES_KEPT;
pub use window::{Measured, Presence, RankWindow, WorkerTotals, WorkerTotalsHistory, WorkerWindow};
