//! The cores of coordinator, workers and clients under virtual time, with faults, and an oracle that knows only the plan.
//!
//! [`run`] plays one seed. Everything is decided by the seed: the job, the cluster, what happens when, and what goes
//! wrong. docs/spec/failures.md says what is covered and what is not.

mod admin;
mod asking;
mod client;
mod coordinator;
mod coverage;
mod dice;
mod election;
mod etcd;
mod faults;
mod launcher;
mod net;
mod oracle;
mod process;
mod scenario;
mod slab;
mod worker;
mod world;
mod writer;

use std::{
    hash::{BuildHasher, RandomState},
    panic::{AssertUnwindSafe, catch_unwind},
};

pub use coverage::{Coverage, EXPECTED};

/// What came of a seed.
#[derive(Debug)]
pub struct Outcome {
    /// Of everything that happened, in order: the same for the same seed.
    pub trace_hash: u64,
    /// What happened how often.
    pub coverage: Coverage,
    /// Virtual time that passed.
    pub virtual_ms: u64,
    /// What is wrong.
    pub failure: Option<String>,
}

/// Plays a seed; `is_shown` prints its trace. An assertion of a core that fails is a failure of the seed.
#[must_use]
pub fn run(seed: u64, is_shown: bool) -> Outcome {
    let mut world = world::World::new(seed, is_shown);
    let result = catch_unwind(AssertUnwindSafe(|| world.run()));
    let failure = match result {
        Ok(result) => result.err(),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            Some(format!("at {} ms: panic: {}", world.now_us / 1_000, text.unwrap_or_default()))
        }
    };
    Outcome {
        trace_hash: world.hash(),
        coverage: std::mem::take(&mut world.coverage),
        virtual_ms: world.now_us / 1_000,
        failure,
    }
}

/// A seed to begin with that nobody has chosen, short enough to be copied.
#[must_use]
pub fn any_seed() -> u64 {
    RandomState::new().hash_one(std::process::id()) % 1_000_000_000_000
}
