//! What the system gives and Rust does not check: memory that two processes share, and descriptors of a process.
#![allow(unsafe_code)]

mod descriptors;
mod memory;

pub(crate) use descriptors::{close_inherited, die_with};
pub(crate) use memory::FrameMemory;
