//! Decisions about the requests to stores: when to make a second one beside a slow one ([`HedgePolicy`]), and when to
//! give up an answer that arrives too slowly ([`DripPolicy`]). No clock: the caller passes durations.

mod drip;
mod durations;
mod hedge;

pub use drip::{AnswerProgress, DripPolicy, patience};
pub use hedge::HedgePolicy;
