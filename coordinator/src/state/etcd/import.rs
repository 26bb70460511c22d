//! Imports a whole state into etcd. The import holds the leader's key, so no coordinator can lead or write meanwhile.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use serde::Deserialize;
use serde_json::json;

use super::{Committed, Condition, EtcdKeys, EtcdState, Gateway, TxnOp, end_of};
use crate::state::{LeaseDeadline, StateStoreError};
use spdl_control::coordinator::{Change, Durable};

/// The time of the lease of the leader's key, in seconds, and the interval between its renewals.
const LEASE_S: u64 = 30;
const RENEWAL: Duration = Duration::from_secs(10);
/// The name in the leader's key, which standby coordinators show.
const NAME: &str = "spdl-coord state import";

impl EtcdState {
    /// Replaces the state by another one, atomically: an interrupted import leaves the old state, except that session
    /// ids may be skipped. A state that is not empty, or cannot be read, is only replaced if `is_forced`; an unreadable
    /// state is deleted first. Session ids continue from the higher of the two. Must be called in a tokio runtime.
    ///
    /// # Errors
    /// Returns [`StateStoreError::Led`] while a coordinator leads, [`StateStoreError::NotEmpty`], and the errors of
    /// [`StateStore::apply`](crate::state::StateStore::apply).
    pub(crate) async fn import(
        gateway: Arc<Gateway>,
        keys: EtcdKeys,
        name: PathBuf,
        durable: Durable,
        is_forced: bool,
    ) -> Result<(), StateStoreError> {
        let failed = |source: super::EtcdError| StateStoreError::Io {
            path: name.clone(),
            action: "written",
            source: source.into(),
        };
        let lease = gateway.grant(LEASE_S).await.map_err(failed)?.id;
        let import = async {
            let (key, free) = (keys.leader(), Condition { key: keys.leader(), created: 0 });
            let value = json!({ "name": NAME, "address": null }).to_string().into_bytes();
            let put = TxnOp::Put { key, value, lease: Some(lease) };
            let term = match gateway.commit(&free, None, &[put]).await.map_err(failed)? {
                Committed::Done { revision } => revision,
                Committed::Unmet { held } => {
                    let leader = leader(&held.map(|held| held.value).unwrap_or_default());
                    return Err(StateStoreError::Led { path: name.clone(), leader });
                }
            };
            replace(Arc::clone(&gateway), keys, term, name.clone(), durable, is_forced).await
        };
        let renewals = async {
            loop {
                tokio::time::sleep(RENEWAL).await;
                // If renewals fail for too long, the lease expires and etcd rejects further writes of this import.
                let _ = gateway.keep_alive(lease).await;
            }
        };
        let done = tokio::select! {
            done = import => done,
            () = renewals => unreachable!("they do not end"),
        };
        // If the request does not arrive, the lease expires by itself.
        let _ = gateway.revoke(lease).await;
        done
    }
}

async fn replace(
    gateway: Arc<Gateway>,
    keys: EtcdKeys,
    term: i64,
    name: PathBuf,
    durable: Durable,
    is_forced: bool,
) -> Result<(), StateStoreError> {
    let open = || EtcdState::open(Arc::clone(&gateway), keys.clone(), term, LeaseDeadline::unbounded(), name.clone());
    let (mut state, before) = match open().await {
        Err(StateStoreError::Damaged { .. } | StateStoreError::Format { .. }) if is_forced => {
            wipe(&gateway, &keys, term, &name).await?;
            open().await?
        }
        opened => opened?,
    };
    if !before.is_empty() && !is_forced {
        let (jobs, sessions) = (before.jobs.len(), before.sessions.len());
        return Err(StateStoreError::NotEmpty { path: name, jobs, sessions });
    }
    // Written before any session, so an import interrupted here has only skipped ids.
    let last = before.last_session.max(durable.last_session);
    let put = TxnOp::Put { key: keys.last_session(), value: last.to_string().into_bytes(), lease: None };
    state.commit(&[put]).await?;
    state.known.last_session = last;
    // Jobs whose records are lost may have left sessions and bad samples.
    let names = before.jobs.iter().map(|record| &record.job.name);
    let names = names.chain(before.sessions.iter().map(|session| &session.job));
    let names: BTreeSet<String> = names.chain(before.bad_samples.iter().map(|bad| &bad.job)).cloned().collect();
    let deletions = names.into_iter().map(Change::DeleteJob);
    state.write(&deletions.chain(durable.into_changes()).collect::<Vec<_>>()).await
}

/// Deletes a state that cannot be read; the leader's key stays, and so does the highest session id if it can be parsed.
async fn wipe(gateway: &Gateway, keys: &EtcdKeys, term: i64, name: &Path) -> Result<(), StateStoreError> {
    let io =
        |action, source: super::EtcdError| StateStoreError::Io { path: name.to_owned(), action, source: source.into() };
    let folders = [keys.jobs(), keys.sessions(), keys.bad_samples(), keys.all_parts()];
    let mut steps: Vec<TxnOp> =
        folders.into_iter().map(|folder| TxnOp::DeleteRange { end: end_of(&folder), key: folder }).collect();
    steps.extend([keys.format(), keys.journal()].map(|key| TxnOp::Delete { key }));
    let last = gateway.read(&keys.last_session()).await.map_err(|error| io("read", error))?;
    let is_number = |value: &[u8]| std::str::from_utf8(value).is_ok_and(|text| text.parse::<u64>().is_ok());
    if last.is_some_and(|last| !is_number(&last.value)) {
        steps.push(TxnOp::Delete { key: keys.last_session() });
    }
    let condition = Condition { key: keys.leader(), created: term };
    match gateway.commit(&condition, None, &steps).await.map_err(|error| io("written", error))? {
        Committed::Done { .. } => Ok(()),
        Committed::Unmet { .. } => Err(StateStoreError::LeadershipLost { path: name.to_owned() }),
    }
}

/// Returns the name in a leader's key.
fn leader(value: &[u8]) -> String {
    #[derive(Deserialize)]
    struct LeaderName {
        name: String,
    }
    serde_json::from_slice::<LeaderName>(value).map_or_else(|_| "another coordinator".to_owned(), |holder| holder.name)
}
