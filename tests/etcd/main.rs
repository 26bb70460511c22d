//! Several coordinators on a real etcd: leaders are killed and suspended, and etcd is unavailable. Where there is no
//! etcd, the tests are skipped and print the reason.

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
