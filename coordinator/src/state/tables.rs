//! The content of the database: its tables, and how records are stored in them.

use std::path::Path;

use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition, TableError};
use serde::{Serialize, de::DeserializeOwned};
use spdl_control::coordinator::{BadSampleRecord, BadSampleReport, Change, Durable, JobRecord, SessionRecord};
use spdl_types::SampleId;

use super::{Dump, FORMAT, StateStoreError, is_readable, restored};

pub(super) const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");
pub(super) const JOBS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("jobs");
pub(super) const SESSIONS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("sessions");
/// Keyed by job and sample; the value is empty if only the id is kept.
const BAD_SAMPLES: TableDefinition<'_, (&str, u64), &[u8]> = TableDefinition::new("bad_samples");

/// Keys of [`META`].
const FORMAT_KEY: &str = "format";
const LAST_SESSION: &str = "last_session";
/// 1 if the coordinator's CA lies beside the state, where it must stay.
const OWNS_CA: &str = "owns_ca";

/// Creates the tables of an empty database and fills them from `dump`.
pub(super) fn begin(database: &Database, dump: &Dump) -> Result<(), redb::Error> {
    let transaction = database.begin_write()?;
    {
        let mut meta = transaction.open_table(META)?;
        meta.insert(FORMAT_KEY, FORMAT)?;
        meta.insert(LAST_SESSION, dump.durable.last_session)?;
        meta.insert(OWNS_CA, u64::from(dump.owns_ca))?;
    }
    transaction.commit()?;
    write(database, &dump.durable.clone().into_changes())
}

/// Records that the database has this program's format from now on.
pub(super) fn raise_format(database: &Database) -> Result<(), redb::Error> {
    let transaction = database.begin_write()?;
    transaction.open_table(META)?.insert(FORMAT_KEY, FORMAT)?;
    transaction.commit()?;
    Ok(())
}

/// Records that the CA lies beside the state.
pub(super) fn own_ca(database: &Database) -> Result<(), redb::Error> {
    let transaction = database.begin_write()?;
    transaction.open_table(META)?.insert(OWNS_CA, 1)?;
    transaction.commit()?;
    Ok(())
}

/// Makes changes durable, in order.
pub(super) fn write(database: &Database, changes: &[Change]) -> Result<(), redb::Error> {
    let transaction = database.begin_write()?;
    {
        let mut meta = transaction.open_table(META)?;
        let mut jobs = transaction.open_table(JOBS)?;
        let mut sessions = transaction.open_table(SESSIONS)?;
        let mut bad_samples = transaction.open_table(BAD_SAMPLES)?;
        for change in changes {
            match change {
                Change::PutJob(record) => {
                    jobs.insert(record.job.name.as_str(), json(record).as_slice())?;
                }
                Change::PutSession(record) => {
                    sessions.insert(record.id.0, json(record).as_slice())?;
                    let last = meta.get(LAST_SESSION)?.map_or(0, |value| value.value());
                    meta.insert(LAST_SESSION, last.max(record.id.0))?;
                }
                Change::PutBadSample(record) => {
                    let value = record.named.as_ref().map(json).unwrap_or_default();
                    bad_samples.insert((record.job.as_str(), record.sample.0), value.as_slice())?;
                }
                Change::DeleteSession(id) => {
                    sessions.remove(id.0)?;
                }
                Change::DeleteJob(name) => {
                    jobs.remove(name.as_str())?;
                    sessions.retain(|_, bytes| {
                        serde_json::from_slice::<SessionRecord>(bytes).map_or(true, |record| record.job != *name)
                    })?;
                    bad_samples.retain_in((name.as_str(), 0)..=(name.as_str(), u64::MAX), |_, _| false)?;
                }
            }
        }
    }
    transaction.commit()?;
    Ok(())
}

/// Reads a database; `path` names it in errors.
pub(super) struct TableReader<'a> {
    pub(super) database: &'a Database,
    pub(super) path: &'a Path,
}

impl TableReader<'_> {
    /// Reads the whole state, if this program can read its format.
    pub(super) fn read(&self) -> Result<Dump, StateStoreError> {
        match self.format()? {
            Some(format) if is_readable(format) => {}
            None => return Err(self.damaged("its format", "it is missing".to_owned())),
            Some(actual) => {
                return Err(StateStoreError::Format { path: self.path.to_owned(), actual, expected: FORMAT });
            }
        }
        let sessions = self.values(SESSIONS, |id| format!("session {id}"))?;
        let durable = Durable {
            jobs: self.jobs()?,
            sessions: sessions
                .iter()
                .map(|(subject, bytes)| self.parse(subject, bytes))
                .collect::<Result<_, StateStoreError>>()?,
            bad_samples: self.bad_samples()?,
            last_session: self.meta(LAST_SESSION)?.unwrap_or(0),
        };
        Ok(Dump { durable, owns_ca: self.meta(OWNS_CA)?.unwrap_or(0) != 0 })
    }

    /// Returns the format that the database was written in.
    pub(super) fn format(&self) -> Result<Option<u64>, StateStoreError> {
        self.meta(FORMAT_KEY)
    }

    fn meta(&self, key: &str) -> Result<Option<u64>, StateStoreError> {
        let read = || -> Result<Option<u64>, redb::Error> {
            match self.database.begin_read()?.open_table(META) {
                Ok(table) => Ok(table.get(key)?.map(|value| value.value())),
                Err(TableError::TableDoesNotExist(_)) => Ok(None),
                Err(error) => Err(error.into()),
            }
        };
        read().map_err(|source| self.io(source))
    }

    /// Returns the values of a table, each with the name of its key for errors.
    fn values<K: redb::Key + 'static>(
        &self,
        table: TableDefinition<'_, K, &[u8]>,
        name: impl Fn(K::SelfType<'_>) -> String,
    ) -> Result<Vec<(String, Vec<u8>)>, StateStoreError> {
        let read = || -> Result<Vec<(String, Vec<u8>)>, redb::Error> {
            let table = self.database.begin_read()?.open_table(table)?;
            let entries = table.iter()?.map(|entry| {
                let (key, value) = entry?;
                Ok((name(key.value()), value.value().to_vec()))
            });
            entries.collect()
        };
        read().map_err(|source| self.io(source))
    }

    fn jobs(&self) -> Result<Vec<JobRecord>, StateStoreError> {
        let mut jobs = Vec::new();
        for (subject, bytes) in self.values(JOBS, |name| format!("job `{name}`"))? {
            let record = self.parse(&subject, &bytes)?;
            jobs.push(restored(record).map_err(|cause| self.damaged(&subject, cause))?);
        }
        Ok(jobs)
    }

    fn bad_samples(&self) -> Result<Vec<BadSampleRecord>, StateStoreError> {
        let mut samples = Vec::new();
        // A job's name has no slash, so the key splits where it was joined.
        for (key, bytes) in self.values(BAD_SAMPLES, |(job, sample)| format!("{job}/{sample}"))? {
            let (job, sample) = key.split_once('/').expect("it was just put together");
            let sample = SampleId(sample.parse().expect("it was just printed"));
            let named: Option<BadSampleReport> = match bytes.as_slice() {
                [] => None,
                bytes => Some(self.parse(&format!("bad sample {sample} of job `{job}`"), bytes)?),
            };
            samples.push(BadSampleRecord { job: job.to_owned(), sample, named });
        }
        Ok(samples)
    }

    fn parse<T: DeserializeOwned>(&self, subject: &str, bytes: &[u8]) -> Result<T, StateStoreError> {
        serde_json::from_slice(bytes).map_err(|error| self.damaged(subject, error.to_string()))
    }

    fn damaged(&self, subject: &str, cause: String) -> StateStoreError {
        StateStoreError::Damaged { path: self.path.to_owned(), subject: subject.to_owned(), cause }
    }

    fn io(&self, source: redb::Error) -> StateStoreError {
        StateStoreError::Io { path: self.path.to_owned(), action: "read", source: source.into() }
    }
}

fn json(record: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(record).expect("plain data serialises")
}
