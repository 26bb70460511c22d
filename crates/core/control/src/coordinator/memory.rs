//! The durable state as a value to which changes are applied.

use std::collections::BTreeMap;

use spdl_types::{SampleId, SessionId};

use super::{BadSampleRecord, Change, Durable, JobRecord, SessionRecord};

/// A durable state in memory. Stores that write whole states build them here; in tests and in the simulation it is the
/// store itself.
#[derive(Clone, Debug, Default)]
pub struct MemoryState {
    jobs: BTreeMap<String, JobRecord>,
    sessions: BTreeMap<SessionId, SessionRecord>,
    bad_samples: BTreeMap<(String, SampleId), BadSampleRecord>,
    last_session: u64,
}

impl From<Durable> for MemoryState {
    fn from(durable: Durable) -> Self {
        let Durable { jobs, sessions, bad_samples, last_session } = durable;
        Self {
            jobs: jobs.into_iter().map(|record| (record.job.name.clone(), record)).collect(),
            sessions: sessions.into_iter().map(|record| (record.id, record)).collect(),
            bad_samples: bad_samples.into_iter().map(|record| ((record.job.clone(), record.sample), record)).collect(),
            last_session,
        }
    }
}

impl MemoryState {
    /// Returns the whole state.
    #[must_use]
    pub fn durable(&self) -> Durable {
        Durable {
            jobs: self.jobs.values().cloned().collect(),
            sessions: self.sessions.values().cloned().collect(),
            bad_samples: self.bad_samples.values().cloned().collect(),
            last_session: self.last_session,
        }
    }

    /// Applies changes in order.
    pub fn apply(&mut self, changes: &[Change]) {
        for change in changes.iter().cloned() {
            match change {
                Change::PutJob(record) => {
                    self.jobs.insert(record.job.name.clone(), record);
                }
                Change::PutSession(record) => {
                    self.last_session = self.last_session.max(record.id.0);
                    self.sessions.insert(record.id, record);
                }
                Change::PutBadSample(record) => {
                    self.bad_samples.insert((record.job.clone(), record.sample), record);
                }
                Change::DeleteSession(id) => {
                    self.sessions.remove(&id);
                }
                Change::DeleteJob(name) => {
                    self.jobs.remove(&name);
                    self.sessions.retain(|_, session| session.job != name);
                    self.bad_samples.retain(|(job, _), _| *job != name);
                }
            }
        }
    }
}
