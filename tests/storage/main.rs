//! Faults of a store, injected between a real server and a real loader.

mod away;
mod cache;
mod disturbed;
mod faults;
#[path = "../support/processes.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod processes;
mod replaced;
mod scene;
mod stored;
#[path = "../support/mod.rs"]
mod support;
