//! The protocols between the processes of a cluster.
//!
//! The [`layout`] of a batch is the same in a slot of shared memory, in the body of a QUIC stream and in the source of
//! the copy to the GPU. Beside it are the [`messages`] and their codec, QUIC endpoints with mutual TLS, and the local
//! channel over a Unix socket with a slab in a sealed memfd. The crates above decide what the messages mean.

pub mod certs;
pub mod codec;
pub mod coordinators;
pub mod frame;
pub mod health;
pub mod home;
#[cfg(feature = "http")]
pub mod http;
mod launch;
pub mod layout;
pub mod local;
pub mod log_limit;
pub mod messages;
#[doc(hidden)]
pub mod mutations;
pub mod node;
pub mod pending;
pub mod quic;
pub mod rejections;
mod session;
pub mod slab;
mod stage;

pub use session::{MAX_BATCH_BYTES, SessionError};
pub use stage::Stage;
