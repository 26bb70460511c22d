//! The durable state in etcd, which several coordinators share; one of them leads.
//!
//! Every write is a transaction with two conditions. First, the leader's key is still the key that this coordinator
//! created, so a former leader writes nothing, however late it comes back. Second, the previous write is still the last
//! one: a write that was abandoned because etcd did not answer may still be carried out, and must not replace later
//! ones.

mod batch;
mod encoding;
mod gateway;
mod import;
mod keys;
#[cfg(test)]
mod tests;

use std::{path::PathBuf, sync::Arc};

use serde::de::DeserializeOwned;
use spdl_control::coordinator::{BadSampleRecord, Change, Durable, MemoryState};
use spdl_types::SampleId;
use tokio::runtime::Handle;

pub use self::gateway::EtcdError;
use self::{
    batch::{EtcdValue, KnownKeys, WriteBatch, stored},
    gateway::{KeyValue, Unchanged},
    keys::end_of,
};
pub(crate) use self::{
    gateway::{Committed, Condition, Gateway, Granted, Timeouts, TxnOp},
    keys::EtcdKeys,
};
use super::{FORMAT, LeaseDeadline, StateStore, StateStoreError, is_readable, restored};

/// The number of values read per page: 1,000 where values are small, 4 where they may be large.
const SMALL_PAGE: usize = 1_000;
const LARGE_PAGE: usize = 4;

/// The state in etcd, for as long as this coordinator leads.
pub(crate) struct EtcdState {
    gateway: Arc<Gateway>,
    keys: EtcdKeys,
    /// The leader's key as this coordinator created it.
    condition: Condition,
    /// The revision of the last write, if known.
    written: Option<i64>,
    deadline: LeaseDeadline,
    known: KnownKeys,
    /// The number of attempts to write.
    attempts: u64,
    /// The name of the state in errors.
    name: PathBuf,
    runtime: Handle,
}

impl EtcdState {
    /// Reads the state, or creates it, as the leader whose key was created in revision `term`. Must be called in a
    /// tokio runtime.
    ///
    /// # Errors
    /// Fails as [`StateStore::load`] does.
    pub(crate) async fn open(
        gateway: Arc<Gateway>,
        keys: EtcdKeys,
        term: i64,
        deadline: LeaseDeadline,
        name: PathBuf,
    ) -> Result<(Self, Durable), StateStoreError> {
        let condition = Condition { key: keys.leader(), created: term };
        let (known, runtime) = (KnownKeys::default(), Handle::current());
        let mut state = Self { gateway, keys, condition, written: None, deadline, known, attempts: 0, name, runtime };
        state.check_format().await?;
        let (durable, known) = state.read().await?;
        state.known = known;
        if let Some(changes) = state.journal(&mut KnownKeys::default()).await? {
            // The previous leader did not finish this write.
            state.write(&changes).await?;
        }
        Ok((state, durable))
    }

    /// Reads the state without leading. Writes made meanwhile may be included or not.
    ///
    /// # Errors
    /// Fails as [`StateStore::load`] does, and when there is no state.
    pub(crate) async fn export(
        gateway: Arc<Gateway>,
        keys: EtcdKeys,
        name: PathBuf,
    ) -> Result<Durable, StateStoreError> {
        // No key is created in this revision, so nothing can be written.
        let condition = Condition { key: keys.leader(), created: -1 };
        let (known, runtime, deadline) = (KnownKeys::default(), Handle::current(), LeaseDeadline::unbounded());
        let mut state = Self { gateway, keys, condition, written: None, deadline, known, attempts: 0, name, runtime };
        let format = state.gateway.read(&state.keys.format()).await.map_err(|error| state.io("read", error))?;
        if format.is_none() {
            return Err(state.damaged("its format", "it is missing".to_owned()));
        }
        state.check_format().await?;
        if state.journal(&mut KnownKeys::default()).await?.is_some() {
            let source = "a long change is being written: ask again".into();
            return Err(StateStoreError::Io { path: state.name, action: "read", source });
        }
        Ok(state.read().await?.0)
    }

    async fn check_format(&mut self) -> Result<(), StateStoreError> {
        let key = self.keys.format();
        let found = self.gateway.read(&key).await.map_err(|error| self.io("read", error))?;
        match found.map(|found| self.parse("format", &found.value)).transpose()? {
            Some(FORMAT) => Ok(()),
            Some(actual) if !is_readable(actual) => {
                Err(StateStoreError::Format { path: self.name.clone(), actual, expected: FORMAT })
            }
            earlier => {
                if let Some(earlier) = earlier {
                    tracing::info!("state `{}` goes from format {earlier} to {FORMAT}", self.name.display());
                }
                self.commit(&[TxnOp::Put { key, value: FORMAT.to_string().into_bytes(), lease: None }]).await
            }
        }
    }

    async fn read(&self) -> Result<(Durable, KnownKeys), StateStoreError> {
        let mut durable = Durable::default();
        let mut known = KnownKeys::default();
        for (key, value) in self.values(&self.keys.jobs(), LARGE_PAGE, &mut known).await? {
            let record = self.parse(&format!("job `{key}`"), &value)?;
            durable.jobs.push(restored(record).map_err(|cause| self.damaged(&format!("job `{key}`"), cause))?);
        }
        for (key, value) in self.values(&self.keys.sessions(), LARGE_PAGE, &mut known).await? {
            let record: spdl_control::coordinator::SessionRecord = self.parse(&format!("session {key}"), &value)?;
            known.sessions.insert(record.id.0, record.job.clone());
            durable.sessions.push(record);
        }
        for (key, value) in self.values(&self.keys.bad_samples(), SMALL_PAGE, &mut known).await? {
            let subject = format!("bad sample `{key}`");
            let parsed = key.split_once('/').and_then(|(job, sample)| Some((job, sample.parse().ok()?)));
            let (job, sample) =
                parsed.ok_or_else(|| self.damaged(&subject, "its key is not a job and a number".to_owned()))?;
            let named = if value.is_empty() { None } else { Some(self.parse(&subject, &value)?) };
            durable.bad_samples.push(BadSampleRecord { job: job.to_owned(), sample: SampleId(sample), named });
        }
        let last = self.gateway.read(&self.keys.last_session()).await.map_err(|error| self.io("read", error))?;
        known.last_session = last.map_or(Ok(0), |found| self.parse("last session", &found.value))?;
        durable.last_session = known.last_session;
        if let Some(changes) = self.journal(&mut known).await? {
            let mut whole = MemoryState::from(durable);
            whole.apply(&changes);
            durable = whole.durable();
        }
        Ok((durable, known))
    }

    /// Returns the changes of an unfinished write, of which only some may be in place.
    async fn journal(&self, known: &mut KnownKeys) -> Result<Option<Vec<Change>>, StateStoreError> {
        let key = self.keys.journal();
        let Some(found) = self.gateway.read(&key).await.map_err(|error| self.io("read", error))? else {
            return Ok(None);
        };
        known.journal = true;
        let value = self.whole("journal", key, found.value, known).await?;
        let mut changes: Vec<Change> = self.parse("journal", &value)?;
        for change in &mut changes {
            if let Change::PutJob(record) = change {
                let job = restored(record.clone()).map_err(|cause| self.damaged("journal", cause))?;
                *record = job;
            }
        }
        Ok(Some(changes))
    }

    /// Returns the values in a folder, by name, in order. Values in parts are joined, and their keys recorded as split.
    async fn values(
        &self,
        folder: &str,
        page: usize,
        known: &mut KnownKeys,
    ) -> Result<Vec<(String, Vec<u8>)>, StateStoreError> {
        let mut values = Vec::new();
        for found in self.folder(folder, page).await? {
            let key = String::from_utf8_lossy(&found.key).into_owned();
            let name = key[folder.len()..].to_owned();
            let value = self.whole(&name, key, found.value, known).await?;
            values.push((name, value));
        }
        Ok(values)
    }

    /// Returns the whole value at a key: `value` itself, or the joined parts that it names, in which case the key is
    /// recorded as split.
    async fn whole(
        &self,
        name: &str,
        key: String,
        value: Vec<u8>,
        known: &mut KnownKeys,
    ) -> Result<Vec<u8>, StateStoreError> {
        let (made, count) = match stored(&value) {
            Some(EtcdValue::Whole(_)) => return Ok(value),
            Some(EtcdValue::Parts { made, count }) => (made, count),
            None => return Err(self.damaged(name, "its parts are not named".to_owned())),
        };
        let parts = self.folder(&self.keys.parts_made(&key, made), LARGE_PAGE).await?;
        if parts.len() != count {
            return Err(self.damaged(name, format!("it has {} of {count} parts", parts.len())));
        }
        known.split.insert(key);
        Ok(parts.into_iter().flat_map(|part| part.value).collect())
    }

    async fn folder(&self, folder: &str, page: usize) -> Result<Vec<KeyValue>, StateStoreError> {
        let (mut start, end) = (folder.as_bytes().to_vec(), end_of(folder));
        let mut found = Vec::new();
        loop {
            let more = self.gateway.page(&start, &end, page).await.map_err(|error| self.io("read", error))?;
            let is_last = more.len() < page;
            if let Some(last) = more.last() {
                // The first key after the last one of this page.
                start = [last.key.as_slice(), &[0]].concat();
            }
            found.extend(more);
            if is_last {
                return Ok(found);
            }
        }
    }

    async fn write(&mut self, changes: &[Change]) -> Result<(), StateStoreError> {
        let mut known = self.known.clone();
        let transactions = self.transactions(&mut known, changes);
        // If a transaction fails, the next attempt replaces the journal that this one may have left.
        self.known.journal |= transactions.len() > 1;
        for steps in transactions {
            self.commit(&steps).await?;
        }
        self.known = KnownKeys { journal: false, ..known };
        Ok(())
    }

    fn transactions(&mut self, known: &mut KnownKeys, changes: &[Change]) -> Vec<Vec<TxnOp>> {
        self.attempts += 1;
        let made = format!("{}-{}", self.condition.created, self.attempts);
        WriteBatch::new(&self.keys, known, made).of(changes)
    }

    async fn commit(&mut self, steps: &[TxnOp]) -> Result<(), StateStoreError> {
        let key = self.keys.written();
        let mark = TxnOp::Put { key: key.clone(), value: Vec::new(), lease: None };
        let steps: Vec<TxnOp> = steps.iter().cloned().chain([mark]).collect();
        loop {
            if !self.deadline.is_valid() {
                return Err(StateStoreError::LeadershipLost { path: self.name.clone() });
            }
            let written = match self.written {
                Some(written) => written,
                None => self.last_write(&key).await?,
            };
            // If no answer arrives, it is unknown whether this write is, or will be, the last.
            self.written = None;
            let unchanged = Unchanged { key: key.clone(), written };
            let committed = self.gateway.commit(&self.condition, Some(&unchanged), &steps).await;
            match committed.map_err(|error| self.io("written", error))? {
                Committed::Done { revision } => {
                    self.written = Some(revision);
                    return Ok(());
                }
                Committed::Unmet { held: Some(held) } if held.create_revision == self.condition.created => {
                    tracing::debug!("a write of the state that was given up has been carried out");
                }
                Committed::Unmet { .. } => {
                    self.deadline.end();
                    return Err(StateStoreError::LeadershipLost { path: self.name.clone() });
                }
            }
        }
    }

    /// Returns the revision of the last write.
    async fn last_write(&self, key: &str) -> Result<i64, StateStoreError> {
        let found = self.gateway.read(key).await.map_err(|error| self.io("read", error))?;
        Ok(found.map_or(0, |found| found.mod_revision))
    }

    fn parse<T: DeserializeOwned>(&self, subject: &str, bytes: &[u8]) -> Result<T, StateStoreError> {
        serde_json::from_slice(bytes).map_err(|error| self.damaged(subject, error.to_string()))
    }

    fn damaged(&self, subject: &str, cause: String) -> StateStoreError {
        StateStoreError::Damaged { path: self.name.clone(), subject: subject.to_owned(), cause }
    }

    fn io(&self, action: &'static str, source: EtcdError) -> StateStoreError {
        StateStoreError::Io { path: self.name.clone(), action, source: source.into() }
    }
}

impl StateStore for EtcdState {
    fn load(&self) -> Result<Durable, StateStoreError> {
        self.runtime.block_on(self.read()).map(|(durable, _)| durable)
    }

    fn apply(&mut self, changes: &[Change]) -> Result<(), StateStoreError> {
        let runtime = self.runtime.clone();
        runtime.block_on(self.write(changes))
    }

    fn is_shared(&self) -> bool {
        true
    }
}
