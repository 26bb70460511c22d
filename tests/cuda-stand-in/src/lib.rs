//! A stand-in for `libcuda.so.1`, for tests on machines without a GPU. Memory of a device is memory of the process, a
//! stream is a queue with a thread that takes its time, kernels are PTX that is interpreted. It fails where it is told to,
//! and notes what a real driver would not forgive. Never shipped: nothing depends on it but tests.
//!
//! `CUDA_STAND_IN` says how it behaves, as `key=value` separated by commas:
//!
//! | key | meaning |
//! |---|---|
//! | `devices=N` | devices; 1 by default |
//! | `memory=BYTES` | memory of each |
//! | `delay_us=N` | each thing on a stream takes up to that much longer; 200 by default |
//! | `seed=N` | of the delays |
//! | `fail=NAME@N:CODE` | the N-th call of the function `NAME` returns `CODE`; may stand several times |
//! | `lose_at_copy=N` | the device is lost when it comes to its N-th copy |
//!
//! `cuda_stand_in_report` tells what was done and what was wrong, `cuda_stand_in_digest` looks at memory of the device
//! on a stream, as a trainer's kernel would.
#![allow(
    unsafe_code,
    non_snake_case,
    clippy::missing_safety_doc,
    reason = "these are the driver's functions, with its names and its contract"
)]

mod calls;
mod host_memory;
mod memory;
mod ptx;
mod settings;
mod state;
mod stream;
