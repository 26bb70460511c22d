//! Hostile bytes and hostile peers: the fuzzers' inputs read again, and attacks on a cluster of real processes whose other
//! ranks finish with the plan's receipt while they are under way.

mod clients;
#[path = "../../fuzz/src/heap.rs"]
mod heap;
mod listeners;
#[path = "../support/processes.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod processes;
mod replay;
mod roles;
mod siege;
#[path = "../../fuzz/src/targets/mod.rs"]
mod targets;

#[global_allocator]
static HEAP: heap::Counting = heap::Counting;
