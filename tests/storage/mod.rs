//! Faults of a store, injected between a real server and a real loader.

mod away;
mod cache;
mod disturbed;
mod faults;
mod fixture;
mod replaced;
