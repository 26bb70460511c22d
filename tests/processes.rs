//! Tests of whole clusters: real processes, sockets and files, faults, and other software.

mod arguments;
mod chaos;
mod cli;
mod cluster;
mod etcd;
mod hostile;
mod interop;
mod memory;
mod monitoring;
mod page;
mod storage;

// Counts each thread for itself, so that tests that run at the same time do not see each other.
#[global_allocator]
static HEAP: spdl_fuzz_targets::heap::CountingAllocator = spdl_fuzz_targets::heap::CountingAllocator;
