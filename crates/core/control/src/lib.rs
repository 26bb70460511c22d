//! The control plane: the messages between the processes of a cluster, and the decisions of coordinator and clients,
//! without I/O, clock, thread or environment. No sample passes here.
//!
//! - The [`messages`] between processes, and how a client finds the leading coordinator among several ([`coordinators`]).
//! - The state machines [`coordinator`] and [`client`]. A shell in the crate of the same name does the I/O: it passes events
//!   and the time in, and carries out the effects that come out. The simulator in `tests/sim` is another shell of the same
//!   state machines.
//! - Which workers hold which blocks ([`peers`]), and which decode for others ([`help`]).
//! - What is recorded for a [`trace`].

pub mod client;
pub mod coordinator;
pub mod coordinators;
pub mod help;
mod launch;
pub mod messages;
pub mod peers;
mod role;
mod session;
mod stores;
pub mod trace;

pub use role::{ParseRoleError, Role};
pub use session::{MAX_BATCH_BYTES, MAX_SLAB_BYTES, SessionError};
pub use stores::Stores;
