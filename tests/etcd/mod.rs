//! Several coordinators on a real etcd: leaders are killed and suspended, and etcd is unavailable. Where there is no
//! etcd, the tests are skipped and print the reason.

mod away;
mod coordinators;
mod killed;
mod moved;
mod signals;
mod stopped;
