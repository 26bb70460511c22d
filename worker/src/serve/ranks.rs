//! The ranks that a worker is serving, and the limit on their number.

use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock},
};

use parking_lot::Mutex;
use spdl_control::messages::RankStats;
use spdl_insight::Transport;
use tokio::sync::Notify;

use crate::feed::FeedView;

/// Grants permits to serve ranks, up to a limit.
#[derive(Debug)]
pub(crate) struct Ranks {
    limit: usize,
    permits: Mutex<RankPermits>,
    joined: Notify,
}

#[derive(Debug, Default)]
struct RankPermits {
    last: u64,
    by_number: BTreeMap<u64, PermitState>,
}

/// The rank that uses the permit, once its feed has started.
type PermitState = Arc<OnceLock<(FeedView, Transport)>>;

/// The permission to serve one rank; given back when dropped.
#[derive(Debug)]
pub(crate) struct RankPermit {
    ranks: Arc<Ranks>,
    number: u64,
    state: PermitState,
}

impl Ranks {
    pub(crate) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { limit, permits: Mutex::default(), joined: Notify::new() })
    }

    pub(crate) const fn limit(&self) -> usize {
        self.limit
    }

    /// Returns a permit; `None` if all are taken.
    pub(crate) fn permit(self: &Arc<Self>) -> Option<RankPermit> {
        let mut permits = self.permits.lock();
        if permits.by_number.len() >= self.limit {
            return None;
        }
        permits.last += 1;
        let number = permits.last;
        let state = PermitState::default();
        permits.by_number.insert(number, state.clone());
        Some(RankPermit { ranks: self.clone(), number, state })
    }

    /// Waits until a rank is served that was not served when this was last awaited. Only one task may wait.
    pub(crate) async fn joined(&self) {
        self.joined.notified().await;
    }

    /// Returns the statistics of each rank that is being served.
    pub(crate) fn stats(&self) -> Vec<RankStats> {
        let permits = self.permits.lock();
        let state = permits.by_number.values().filter_map(|permit| permit.get());
        state.map(|(view, transport)| view.stats(*transport)).collect()
    }
}

impl RankPermit {
    /// Adds the rank to those that [`Ranks::stats`] reports.
    pub(crate) fn serve(&self, view: FeedView, transport: Transport) {
        assert!(self.state.set((view, transport)).is_ok(), "a permit is used once");
        self.ranks.joined.notify_one();
    }
}

impl Drop for RankPermit {
    fn drop(&mut self) {
        self.ranks.permits.lock().by_number.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_permit_that_is_dropped_can_be_granted_again() {
        let ranks = Ranks::new(2);
        let (first, _second) = (ranks.permit().unwrap(), ranks.permit().unwrap());
        assert!(ranks.permit().is_none());
        drop(first);
        assert!(ranks.permit().is_some());
        assert!(ranks.stats().is_empty(), "no rank is served yet");
    }
}
