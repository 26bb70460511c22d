//! A stand-in for `libcuda.so.1`, for tests on machines without a GPU. Device memory is memory of the process, a stream
//! is a queue with a thread that adds random delays, and kernels are interpreted PTX. It injects faults on request, and
//! records misuse that a real driver would punish. Never shipped: only tests depend on it.
//!
//! `CUDA_STAND_IN` sets its behaviour, as `key=value` separated by commas:
//!
//! | key | meaning |
//! |---|---|
//! | `devices=N` | the number of devices; 1 by default |
//! | `memory=BYTES` | the memory of each device |
//! | `delay_us=N` | the longest random delay of an operation on a stream; 200 by default |
//! | `seed=N` | the seed of the delays |
//! | `fail=NAME@N:CODE` | the N-th call of the function `NAME` returns `CODE`; may be given several times |
//! | `lose_at_copy=N` | the device is lost at the N-th copy |
//!
//! `cuda_stand_in_report` returns what was done and what was wrong. `cuda_stand_in_digest` reads device memory on a
//! stream, as a trainer's kernel would.
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
