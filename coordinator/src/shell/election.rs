//! Leader election by lease. Of the coordinators that share a state in etcd, the creator of the leader's key
//! leads for as long as it renews the lease attached to the key.
//!
//! A leader that cannot renew its lease stops before any other coordinator can begin (see
//! [`LeaseDeadline::end_of_lease`]). When it wins the key again, it starts from the stored state.

use std::{
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::{
    dataset::DatasetLimits,
    driver::Driver,
    leadership::{Leadership, Standby},
    spawn_leader_tasks,
};
use crate::{
    error_text,
    state::{
        Committed, Condition, EtcdError, EtcdKeys, EtcdState, Gateway, Granted, LeaseDeadline, StateStoreError, TxnOp,
    },
};
use spdl_control::coordinator::CoordinatorConfig;

/// The number of renewals within the time of one lease.
const RENEWALS: u32 = 5;
/// The largest value of a leader's key that is parsed, in bytes.
const MAX_HOLDER_BYTES: usize = 4 << 10;
/// The pause before the renewal of a lease is tried again after a failure.
const RETRY: Duration = Duration::from_millis(100);
/// Time limit for giving up the lease.
const RESIGN_TIMEOUT: Duration = Duration::from_millis(400);

/// The holder of the leader's key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LeaseHolder {
    pub(crate) name: String,
    /// The address at which other processes reach it, if known.
    pub(crate) address: Option<String>,
}

/// The part of a coordinator in the election.
pub(crate) struct Election {
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) keys: EtcdKeys,
    /// The name of the state in errors.
    pub(crate) state: PathBuf,
    pub(crate) holder: LeaseHolder,
    /// The time of the lease to request, in seconds.
    pub(crate) lease_s: u64,
    pub(crate) leadership: Arc<Leadership>,
    pub(crate) config: CoordinatorConfig,
    pub(crate) datasets: DatasetLimits,
    pub(crate) jobs: Option<PathBuf>,
    /// The lease that this coordinator holds or may hold.
    pub(crate) lease: Mutex<Option<i64>>,
}

/// The outcome of a won election.
struct Won {
    lease: Granted,
    /// The etcd revision in which the key was created.
    term: i64,
    /// When the lease was requested.
    asked: Instant,
}

impl Election {
    /// Leads whenever it can. Runs until it is dropped.
    pub(crate) async fn run(self: Arc<Self>) {
        let pause = (Duration::from_secs(self.lease_s) / 10).clamp(Duration::from_millis(100), Duration::from_secs(1));
        let mut last_logged = None;
        loop {
            let standby = match self.campaign().await {
                Ok(Ok(won)) => {
                    last_logged = None;
                    let cause = self.lead(won).await;
                    tracing::warn!("this coordinator does not lead any more: {cause}");
                    Standby::Leaderless { cause }
                }
                Ok(Err(holder)) => Standby::Behind { address: holder.address, name: holder.name },
                Err(error) => Standby::Leaderless { cause: error_text(&error) },
            };
            if last_logged.as_ref() != Some(&standby) {
                match &standby {
                    Standby::Behind { name, .. } => tracing::info!("on standby: `{name}` leads"),
                    Standby::Leaderless { cause } => tracing::warn!("no coordinator leads: {cause}"),
                }
                last_logged = Some(standby.clone());
            }
            self.leadership.stand_by(standby);
            tokio::time::sleep(pause).await;
        }
    }

    /// Tries to become the leader; otherwise returns the current leader.
    async fn campaign(&self) -> Result<Result<Won, LeaseHolder>, EtcdError> {
        // An old lease may have won the key without the answer arriving, or may have been lost without being revoked.
        let old = *self.lease.lock();
        if let Some(old) = old {
            self.gateway.revoke(old).await?;
            *self.lease.lock() = None;
        }
        let key = self.keys.leader();
        if let Some(held) = self.gateway.read(&key).await? {
            return Ok(Err(LeaseHolder::of(&held.value)));
        }
        let asked = Instant::now();
        let lease = self.gateway.grant(self.lease_s).await?;
        *self.lease.lock() = Some(lease.id);
        let value = serde_json::to_vec(&self.holder).expect("plain data serialises");
        let condition = Condition { key: key.clone(), created: 0 };
        match self.gateway.commit(&condition, None, &[TxnOp::Put { key, value, lease: Some(lease.id) }]).await? {
            Committed::Done { revision } => Ok(Ok(Won { lease, term: revision, asked })),
            Committed::Unmet { held } => Ok(Err(LeaseHolder::of(&held.map(|held| held.value).unwrap_or_default()))),
        }
    }

    /// Leads until it no longer can, and returns the reason.
    async fn lead(&self, won: Won) -> String {
        let ttl = Duration::from_secs(won.lease.ttl_s);
        let deadline = LeaseDeadline::until(LeaseDeadline::end_of_lease(won.asked, ttl));
        let why = tokio::select! {
            why = self.renew(won.lease, ttl, &deadline) => why,
            error = self.lead_until_lost(won.term, &deadline) => error_text(&error),
        };
        deadline.end();
        why
    }

    /// Reads the state and serves requests from it; returns only if the state cannot be read.
    async fn lead_until_lost(&self, term: i64, deadline: &LeaseDeadline) -> StateStoreError {
        let opened =
            EtcdState::open(Arc::clone(&self.gateway), self.keys.clone(), term, deadline.clone(), self.state.clone());
        let (store, durable) = match opened.await {
            Ok(opened) => opened,
            Err(error) => {
                tracing::error!("this coordinator cannot lead: {}", error_text(&error));
                return error;
            }
        };
        tracing::info!(
            "this coordinator leads, with {} jobs and {} sessions",
            durable.jobs.len(),
            durable.sessions.len()
        );
        let driver = Driver::start(self.config, self.datasets.clone(), durable, Box::new(store));
        self.leadership.lead(Arc::clone(&driver), deadline.clone());
        let mut tasks = spawn_leader_tasks(&driver, &self.leadership, self.jobs.clone());
        drop(driver);
        while tasks.join_next().await.is_some() {}
        std::future::pending().await
    }

    /// Renews the lease; returns the reason when the lease is lost or about to expire.
    async fn renew(&self, lease: Granted, ttl: Duration, deadline: &LeaseDeadline) -> String {
        let period = ttl / RENEWALS;
        let mut last = "the lease could not be renewed in time".to_owned();
        let mut pause = period;
        loop {
            let left = deadline.left().unwrap_or(period);
            tokio::time::sleep(pause.min(left)).await;
            if !deadline.is_valid() {
                return last;
            }
            let asked = Instant::now();
            match self.gateway.keep_alive(lease.id).await {
                Ok(Some(ttl_s)) => {
                    deadline.extend(LeaseDeadline::end_of_lease(asked, Duration::from_secs(ttl_s)));
                    pause = period;
                }
                Ok(None) => return "its lease has run out".to_owned(),
                Err(error) => {
                    last = error_text(&error);
                    pause = RETRY;
                }
            }
        }
    }

    /// Gives up the lease, so that another coordinator can lead at once. Call it after [`run`](Self::run) has ended.
    pub(crate) async fn resign(&self) {
        let lease = *self.lease.lock();
        if let Some(lease) = lease {
            // If the request does not arrive, the lease expires by itself.
            let _ = tokio::time::timeout(RESIGN_TIMEOUT, self.gateway.revoke(lease)).await;
        }
    }
}

impl LeaseHolder {
    /// Parses the value of the leader's key; a holder whose value cannot be parsed still leads.
    fn of(value: &[u8]) -> Self {
        let readable = (value.len() <= MAX_HOLDER_BYTES).then(|| serde_json::from_slice(value).ok()).flatten();
        readable.unwrap_or_else(|| Self { name: "another coordinator".to_owned(), address: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_is_read_as_it_is_written_and_nonsense_is_another_one() {
        let holder = LeaseHolder { name: "a".to_owned(), address: Some("h:1".to_owned()) };
        assert_eq!(LeaseHolder::of(&serde_json::to_vec(&holder).unwrap()), holder);
        let long = serde_json::to_vec(&LeaseHolder { name: "a".repeat(MAX_HOLDER_BYTES), address: None }).unwrap();
        for nonsense in [b"".as_slice(), b"{", &long] {
            assert_eq!(LeaseHolder::of(nonsense).name, "another coordinator");
        }
    }
}
