//! The durable state in one redb file, `coordinator.redb` in the state directory. Every change is synced before it
//! counts as done. redb locks the file for as long as the process lives, so kill -9 leaves no lock behind.

use std::{
    fs,
    path::{Path, PathBuf},
};

use redb::{Database, DatabaseError, ReadableDatabase, ReadableTable, TableDefinition, TableError};
use serde::{Serialize, de::DeserializeOwned};
use spdl_shard::SampleId;

use super::{FORMAT, StateError, StateStore, is_readable, restored};
use crate::core::{BadSampleCause, BadSampleRecord, Change, Durable, JobRecord, SessionRecord};

/// The file's name in the state directory.
const FILE: &str = "coordinator.redb";
/// Memory for cached pages.
const CACHE_BYTES: usize = 8 << 20;

const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");
const JOBS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("jobs");
const SESSIONS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("sessions");
/// Keyed by job and sample; the value is empty where only the id is kept.
const BAD_SAMPLES: TableDefinition<'_, (&str, u64), &[u8]> = TableDefinition::new("bad_samples");

/// State in a file.
pub struct EmbeddedState {
    path: PathBuf,
    database: Database,
}

impl EmbeddedState {
    /// Opens the state in a directory, or begins it there.
    ///
    /// # Errors
    /// When another process has it, another version wrote it, or the disk fails.
    pub fn open(directory: &Path) -> Result<Self, StateError> {
        let path = directory.join(FILE);
        let io = |source| StateError::Io { path: path.clone(), action: "opened", source };
        fs::create_dir_all(directory).map_err(|error| io(error.into()))?;
        let database = Database::builder().set_cache_size(CACHE_BYTES).create(&path).map_err(|error| match error {
            DatabaseError::DatabaseAlreadyOpen => StateError::Locked { path: path.clone() },
            other => io(other.into()),
        })?;
        let state = Self { path, database };
        match state.meta("format")? {
            None => state.begin().map_err(|source| state.io("written", source))?,
            Some(FORMAT) => {}
            Some(earlier) if is_readable(earlier) => {
                tracing::info!("state `{}` goes from format {earlier} to {FORMAT}", state.path.display());
                state.begin().map_err(|source| state.io("written", source))?;
            }
            Some(actual) => return Err(StateError::Format { path: state.path, actual, expected: FORMAT }),
        }
        Ok(state)
    }

    /// Makes the tables that are not there, and writes the format.
    fn begin(&self) -> Result<(), redb::Error> {
        let transaction = self.database.begin_write()?;
        transaction.open_table(META)?.insert("format", FORMAT)?;
        transaction.open_table(JOBS)?;
        transaction.open_table(SESSIONS)?;
        transaction.open_table(BAD_SAMPLES)?;
        transaction.commit()?;
        Ok(())
    }

    fn meta(&self, key: &str) -> Result<Option<u64>, StateError> {
        let read = || -> Result<Option<u64>, redb::Error> {
            match self.database.begin_read()?.open_table(META) {
                Ok(table) => Ok(table.get(key)?.map(|value| value.value())),
                Err(TableError::TableDoesNotExist(_)) => Ok(None),
                Err(error) => Err(error.into()),
            }
        };
        read().map_err(|source| self.io("read", source))
    }

    fn io(&self, action: &'static str, source: redb::Error) -> StateError {
        StateError::Io { path: self.path.clone(), action, source: source.into() }
    }

    /// The values of a table, with their keys for errors.
    fn values<K: redb::Key + 'static>(
        &self,
        table: TableDefinition<'_, K, &[u8]>,
        name: impl Fn(K::SelfType<'_>) -> String,
    ) -> Result<Vec<(String, Vec<u8>)>, StateError> {
        let read = || -> Result<Vec<(String, Vec<u8>)>, redb::Error> {
            let table = self.database.begin_read()?.open_table(table)?;
            let entries = table.iter()?.map(|entry| {
                let (key, value) = entry?;
                Ok((name(key.value()), value.value().to_vec()))
            });
            entries.collect()
        };
        read().map_err(|source| self.io("read", source))
    }

    fn parse<T: DeserializeOwned>(&self, subject: &str, bytes: &[u8]) -> Result<T, StateError> {
        serde_json::from_slice(bytes).map_err(|error| self.damaged(subject, error.to_string()))
    }

    fn damaged(&self, subject: &str, cause: String) -> StateError {
        StateError::Damaged { path: self.path.clone(), subject: subject.to_owned(), cause }
    }

    fn jobs(&self) -> Result<Vec<JobRecord>, StateError> {
        let mut jobs = Vec::new();
        for (subject, bytes) in self.values(JOBS, |name| format!("job `{name}`"))? {
            let record = self.parse(&subject, &bytes)?;
            jobs.push(restored(record).map_err(|cause| self.damaged(&subject, cause))?);
        }
        Ok(jobs)
    }

    fn bad_samples(&self) -> Result<Vec<BadSampleRecord>, StateError> {
        let mut samples = Vec::new();
        // A job's name has no slash, so the key splits where it was joined.
        for (key, bytes) in self.values(BAD_SAMPLES, |(job, sample)| format!("{job}/{sample}"))? {
            let (job, sample) = key.split_once('/').expect("it was just put together");
            let sample = SampleId(sample.parse().expect("it was just printed"));
            let named: Option<BadSampleCause> = match bytes.as_slice() {
                [] => None,
                bytes => Some(self.parse(&format!("bad sample {sample} of job `{job}`"), bytes)?),
            };
            samples.push(BadSampleRecord { job: job.to_owned(), sample, named });
        }
        Ok(samples)
    }

    fn write(&self, changes: &[Change]) -> Result<(), redb::Error> {
        let transaction = self.database.begin_write()?;
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
                        let last = meta.get("last_session")?.map_or(0, |value| value.value());
                        meta.insert("last_session", last.max(record.id.0))?;
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
}

impl StateStore for EmbeddedState {
    fn load(&self) -> Result<Durable, StateError> {
        let sessions = self.values(SESSIONS, |id| format!("session {id}"))?;
        Ok(Durable {
            jobs: self.jobs()?,
            sessions: sessions
                .iter()
                .map(|(subject, bytes)| self.parse(subject, bytes))
                .collect::<Result<_, StateError>>()?,
            bad_samples: self.bad_samples()?,
            last_session: self.meta("last_session")?.unwrap_or(0),
        })
    }

    fn apply(&mut self, changes: &[Change]) -> Result<(), StateError> {
        if changes.is_empty() {
            return Ok(());
        }
        self.write(changes).map_err(|source| self.io("written", source))
    }
}

fn json(record: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(record).expect("plain data serialises")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::conformance;

    #[test]
    fn state_in_a_file_conforms() {
        let directories: std::cell::RefCell<Vec<tempfile::TempDir>> = Default::default();
        conformance::run(|state: Option<EmbeddedState>| {
            if state.is_none() {
                directories.borrow_mut().push(tempfile::tempdir().unwrap());
            }
            drop(state);
            EmbeddedState::open(directories.borrow().last().unwrap().path()).unwrap()
        });
    }

    #[test]
    fn a_second_coordinator_on_one_directory_is_refused_until_the_first_is_gone() {
        let directory = tempfile::tempdir().unwrap();
        let first = EmbeddedState::open(directory.path()).unwrap();
        let error = EmbeddedState::open(directory.path()).err().expect("it is locked");
        assert!(error.to_string().contains("in use by another process"), "{error}");
        drop(first);
        EmbeddedState::open(directory.path()).unwrap();
    }

    #[test]
    fn another_format_is_refused_with_both_numbers() {
        let directory = tempfile::tempdir().unwrap();
        let state = EmbeddedState::open(directory.path()).unwrap();
        let transaction = state.database.begin_write().unwrap();
        transaction.open_table(META).unwrap().insert("format", FORMAT + 1).unwrap();
        transaction.commit().unwrap();
        drop(state);
        let error = EmbeddedState::open(directory.path()).err().expect("it is newer").to_string();
        assert!(error.contains("has format 3; this program reads format 2"), "{error}");
    }

    #[test]
    fn a_state_written_before_there_were_runs_is_read_and_its_sessions_are_of_the_run_of_the_jobs_name() {
        let directory = tempfile::tempdir().unwrap();
        let mut state = EmbeddedState::open(directory.path()).unwrap();
        let job = crate::core::testing::job("j");
        let record = JobRecord {
            fingerprint: job.fingerprint(),
            max_bad_fraction_bits: job.max_bad_fraction.to_bits(),
            failed: None,
            job,
        };
        state.apply(&[Change::PutJob(record)]).unwrap();
        let transaction = state.database.begin_write().unwrap();
        transaction.open_table(META).unwrap().insert("format", 1).unwrap();
        transaction.open_table(SESSIONS).unwrap().insert(7, conformance::SESSION_OF_FORMAT_1.as_bytes()).unwrap();
        transaction.commit().unwrap();
        drop(state);
        let state = EmbeddedState::open(directory.path()).unwrap();
        assert_eq!(state.meta("format").unwrap(), Some(FORMAT));
        conformance::goes_on_from_format_1(state.load().unwrap());
    }

    #[test]
    fn a_file_that_is_no_state_is_refused_and_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join(FILE), b"something else").unwrap();
        let error = EmbeddedState::open(directory.path()).err().expect("it is no database");
        assert!(error.to_string().contains(FILE), "{error}");
        assert_eq!(fs::read(directory.path().join(FILE)).unwrap(), b"something else");
    }

    #[test]
    fn a_record_that_does_not_read_back_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let state = EmbeddedState::open(directory.path()).unwrap();
        let transaction = state.database.begin_write().unwrap();
        transaction.open_table(JOBS).unwrap().insert("x", b"{".as_slice()).unwrap();
        transaction.commit().unwrap();
        let error = state.load().unwrap_err().to_string();
        assert!(error.contains("job `x` is damaged"), "{error}");
    }
}
