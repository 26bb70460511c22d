//! The pure half of the system: data and functions without I/O, clock, thread or environment.
//!
//! - What a job is, which samples it has ([`view`]) and in which [`order`] they come: [`job`], [`Position`], [`Receipt`],
//!   [`Fingerprint`].
//! - What the processes send each other: [`messages`], the [`layout`] of a batch, and how a client finds the leading
//!   coordinator among several ([`coordinators`]).
//! - What the caches of blocks keep ([`cache`]).
//! - When a request to a store is made a second time ([`requests`]).
//! - What limits a rank ([`insight`]), and the values that a worker changes at run time ([`tuning`]).
//! - The state machines that decide: [`coordinator`], [`client`] and [`feed`]. A shell in the crate of the same name does
//!   the I/O: it passes events and the time in, and carries out the effects that come out. The simulator in `tests/sim`
//!   is another shell of the same state machines.
//!
//! The types that crates below this one need too are in `spdl-types`; those that the crates above use are re-exported here.
//!
//! CI checks that no dependency of this crate is a runtime, opens sockets or files, or reads a clock.

pub mod backoff;
pub mod cache;
pub mod client;
pub mod coordinator;
pub mod coordinators;
pub mod feed;
mod fingerprint;
pub mod help;
pub mod hex128;
pub mod history;
pub mod insight;
pub mod job;
mod launch;
pub mod layout;
pub mod messages;
#[doc(hidden)]
pub mod mutations;
pub mod order;
pub mod peers;
mod receipt;
pub mod recent;
mod redact;
pub mod requests;
mod role;
mod session;
pub mod size;
mod stores;
pub mod trace;
pub mod tuning;
pub mod view;

pub use fingerprint::Fingerprint;
pub use receipt::Receipt;
pub use redact::{redact, secret_in};
pub use role::{ParseRoleError, Role};
pub use session::{MAX_BATCH_BYTES, MAX_SLAB_BYTES, SessionError};
pub use spdl_types::{BatchId, Position, SampleId, Stage, elementary, histogram, mix};
pub use stores::Stores;
