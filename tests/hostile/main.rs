//! Hostile bytes and hostile peers: replays the fuzzers' inputs, and attacks a cluster of real processes while other
//! ranks must finish with the plan's receipt.

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
