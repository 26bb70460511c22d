//! Decisions about the requests to stores: when a second one is made beside a slow one ([`HedgePolicy`]), and when an
//! answer comes so slowly that it is given up ([`DripPolicy`]). No clock: the caller passes durations.

mod drip;
mod durations;
mod hedge;

pub use drip::{AnswerProgress, DripPolicy, patience};
pub use hedge::HedgePolicy;
