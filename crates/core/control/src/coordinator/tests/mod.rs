//! The rules of the coordinator, one test each, in virtual time.

mod bad_samples;
mod diagnosis;
mod heartbeats;
mod history;
mod jobs;
mod launches;
mod limits;
mod membership;
mod peers;
mod random;
mod restart;
mod roles;
mod runs;
mod scale;
mod sessions;
mod trace;
mod world;
