//! Runs the cores of coordinator, workers and clients under virtual time, with faults, and checks them with an oracle
//! that knows only the plan.
//!
//! [`run`] runs one seed. The seed decides everything: the job, the cluster, when each event happens, and which faults
//! occur. docs/spec/failures/simulator.md lists what is covered and what is not.

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
mod sizes;
mod slab;
mod sources;
mod worker;
mod world;
mod writer;

use std::{
    hash::{BuildHasher, RandomState},
    panic::{AssertUnwindSafe, catch_unwind},
};

pub use coverage::{Coverage, EXPECTED};

/// The result of a seed.
#[derive(Debug)]
pub struct SeedOutcome {
    /// A hash of all events in order: the same for the same seed.
    pub trace_hash: u64,
    /// How often each kind of event happened.
    pub coverage: Coverage,
    /// The virtual time that passed, in milliseconds.
    pub virtual_ms: u64,
    /// Why the seed failed, if it did.
    pub failure: Option<String>,
}

/// Runs a seed; `is_shown` prints its trace. A failed assertion in a core fails the seed.
#[must_use]
pub fn run(seed: u64, is_shown: bool) -> SeedOutcome {
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
    SeedOutcome {
        trace_hash: world.hash(),
        coverage: std::mem::take(&mut world.coverage),
        virtual_ms: world.now_us / 1_000,
        failure,
    }
}

/// Returns a random first seed, short enough to be copied by hand.
#[must_use]
pub fn any_seed() -> u64 {
    RandomState::new().hash_one(std::process::id()) % 1_000_000_000_000
}
