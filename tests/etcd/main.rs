//! Several coordinators on a real etcd: leaders that are killed and stopped, an etcd that is away. Skipped, with the reason,
//! where there is no etcd.

mod away;
mod coordinators;
#[path = "../support/etcd.rs"]
mod etcd;
mod killed;
mod moved;
#[path = "../support/processes.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod processes;
mod signals;
mod stopped;
