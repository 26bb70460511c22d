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
//! | `staging_us=N` | how much later than the call a copy from pageable memory on the default stream lands; 0 by default |
//! | `pools=0` | the devices have no memory pools |
//! | `fail=NAME@N:CODE` | the N-th call of the function `NAME` returns `CODE`; may be given several times |
//! | `fail=NAME@N+:CODE` | every call from the N-th on returns `CODE` |
//! | `lose_at_copy=N` | the device is lost at the N-th copy |
//! | `refuse_ptx=1` | the compiler refuses every kernel |
//!
//! `cuda_stand_in_report` returns what was done and what was wrong. `cuda_stand_in_digest` reads device memory on a
//! stream, as a trainer's kernel would. `cuda_stand_in_hold` keeps a stream busy, and `cuda_stand_in_pause_copies` all
//! copies, until the test lets them go on.
#![allow(
    unsafe_code,
    non_snake_case,
    clippy::missing_safety_doc,
    reason = "these are the driver's functions, with its names and its contract"
)]

mod calls;
mod capture;
mod codes;
mod contexts;
mod default_stream;
mod gates;
mod host_functions;
mod host_memory;
mod memory;
mod modules;
mod pointers;
mod pools;
mod ptx;
mod settings;
mod state;
mod stream;
mod teardown;
