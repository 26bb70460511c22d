//! Hostile bytes and hostile peers: replays the fuzzers' inputs, and attacks a cluster of real processes while other
//! ranks must finish with the plan's receipt.

mod clients;
mod listeners;
mod replay;
mod roles;
mod siege;

#[global_allocator]
static HEAP: spdl_fuzz_targets::heap::Counting = spdl_fuzz_targets::heap::Counting;
