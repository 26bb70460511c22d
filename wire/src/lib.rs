//! How processes talk to each other.
//!
//! The [`layout`] of a batch, the one region that is a slot in shared memory, the body of a QUIC stream and the
//! source of the copy to the GPU; the [`messages`] and their codec; QUIC endpoints with mutual TLS; the local
//! channel over a Unix socket and a sealed memfd slab. What the messages mean is decided in the crates above.

pub mod certs;
pub mod codec;
pub mod coordinators;
pub mod doorway;
pub mod frame;
pub mod home;
#[cfg(feature = "http")]
pub mod http;
mod launch;
pub mod layout;
pub mod local;
pub mod log_limit;
pub mod messages;
pub mod node;
#[doc(hidden)]
pub mod planted;
pub mod quic;
mod session;
pub mod slab;

pub use session::{MAX_BATCH_BYTES, SessionError};
