//! The core at either end of a QUIC connection that encrypts, decrypts and copies its batches: whether it is full, and what more connections
//! would give, each of which has a thread of its own.

use crate::Transport;

use super::{Limit, MAX_CONNECTIONS, RankWindow, WorkerWindow, window::megabytes};

/// Part of the time for which a thread had a core above which that core is full.
const FULL: f64 = 0.9;
/// A worker that sends this many times what a rank gets serves others, too, whose connections share its threads.
const SHARED: f64 = 1.2;

/// A core that limits what a rank gets over its connections.
pub(super) struct FullCore {
    /// The process that it is of.
    end: &'static str,
    /// Part of a core that the busiest thread of this end used.
    thread: f64,
    connections: u32,
    /// The most connections that carry batches at the same time.
    max_connections: u32,
    bytes_per_s: f64,
    /// Whether the thread works for other ranks, too.
    is_shared: bool,
}

/// Returns the end of a rank's connections whose core is full; `None` if neither is.
pub(super) fn full_core(rank: &RankWindow, worker: &WorkerWindow) -> Option<FullCore> {
    let received = &rank.received;
    let (end, thread) = match worker.sending_thread > received.thread {
        true => ("sender", worker.sending_thread),
        false => ("receiver", received.thread),
    };
    let is_known = rank.transport == Some(Transport::Quic) && received.connections > 0 && received.bytes_per_s > 0.0;
    (is_known && thread > FULL).then(|| FullCore {
        end,
        thread,
        connections: received.connections,
        max_connections: rank.slots.min(MAX_CONNECTIONS),
        bytes_per_s: received.bytes_per_s,
        is_shared: end == "sender" && worker.sent_bytes_per_s() > SHARED * received.bytes_per_s,
    })
}

impl FullCore {
    /// Describes what is short.
    pub(super) fn subject(&self, worker: &WorkerWindow) -> String {
        let Self { end, connections, bytes_per_s, .. } = self;
        let take =
            if *connections == 1 { "1 connection takes".to_owned() } else { format!("{connections} connections take") };
        format!(
            "one core of the {end} is full ({take} {:.1} MB/s from worker `{}`)",
            megabytes(*bytes_per_s),
            worker.name
        )
    }

    /// Describes how many connections would give which rate, where the next limit allows `next.0` times the rate.
    pub(super) fn remedy(&self, next: Option<(f64, Limit)>) -> String {
        let least = self.connections + 1;
        if self.max_connections < least {
            return "; more slots with as many connections, or a worker on the trainer's node, would help".to_owned();
        }
        // What a connection takes for each second of CPU time of its thread, in connections of the present rate.
        let of_one = 1.0 / (f64::from(self.connections) * self.thread.min(1.0));
        let wanted = next.map_or(f64::INFINITY, |(factor, _)| (factor / of_one).ceil());
        let count = (wanted as u32).clamp(least, self.max_connections);
        let means = format!("{count} connections (`SPDL_QUIC=connections={count}` for trainer and worker)");
        if self.is_shared {
            return format!("; {means} would help");
        }
        let reach = of_one * f64::from(count);
        let (factor, then) = match next {
            Some((factor, limit)) if factor <= reach => (factor, format!(", then {}", limit.as_next())),
            _ => (reach, String::new()),
        };
        format!("; {means} would give about {:.1} MB/s{then}", megabytes(factor * self.bytes_per_s))
    }
}
