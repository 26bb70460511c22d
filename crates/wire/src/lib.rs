//! The protocols between the processes of a cluster.
//!
//! The crates below `core/` define the data: the messages, and the layout of batches, which is the same in a slot of
//! shared memory and in the body of a QUIC stream. Here are the [`codec`], QUIC endpoints with mutual TLS, and the
//! local channel over a Unix socket with a [`slab`] in a sealed memfd. The crates above decide what the messages mean.

pub mod certs;
pub mod codec;
pub mod coordinators;
pub mod frame;
pub mod group;
pub mod health;
pub mod home;
pub mod local;
pub mod log_limit;
pub mod node;
pub mod pending;
pub mod quic;
pub mod rejections;
pub mod slab;
pub mod spans;
pub mod trace;
