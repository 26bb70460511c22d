//! Hostile bytes and hostile peers: replays the fuzzers' inputs, and attacks a cluster of real processes while other
//! ranks must finish with the plan's receipt.

mod attacked_cluster;
mod clients;
mod listeners;
mod replay;
mod roles;
