//! Batches on a CUDA device, which the device itself copies from page-locked slabs, on streams of the loader's own.
//!
//! [`driver`] calls the driver, [`page_locks`] locks the pages of slots, [`copy_stream`] queues copies and kernels on
//! streams, [`pending_copy`] keeps a slot until its copy is done, [`completion`] is the thread that waits for that,
//! [`batch_storage`] is a batch that the trainer has, [`returned_buffer`] what is left of it, and [`prefetcher`] decides when to start copies.

mod batch_storage;
mod buffer;
mod completion;
mod copy_stream;
mod driver;
mod kernel;
mod launch;
mod page_locks;
mod pending_copy;
mod prefetcher;
mod returned_buffer;

pub(crate) use driver::Context;
pub(crate) use prefetcher::Prefetcher;
