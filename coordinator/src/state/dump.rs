//! A dump of the whole state as a plain file, one JSON object per line: for backups, for moving the state, for reading
//! by eye. docs/spec/formats/state.md describes it.

use std::{
    fs,
    io::{self, BufRead, BufReader, Write},
    path::Path,
};

use serde::{Deserialize, Serialize};

use super::{StateStoreError, restored};
use spdl_control::coordinator::{BadSampleRecord, Durable, JobRecord, SessionRecord};

/// The version of the file format.
const VERSION: u32 = 1;
/// The number of session ids that are skipped when a state continues from a dump: sessions may have begun after the
/// dump was written, and may still run.
const SKIPPED_SESSIONS: u64 = 1_000;

/// The first line. Its record counts reveal a truncated file.
#[derive(Debug, Serialize, Deserialize)]
struct Head {
    spdl_state: u32,
    program: String,
    last_session: u64,
    owns_ca: bool,
    jobs: usize,
    sessions: usize,
    bad_samples: usize,
}

/// Each further line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum DumpLine {
    Job(Box<JobRecord>),
    Session(SessionRecord),
    BadSample(BadSampleRecord),
}

/// The content of a dump file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Dump {
    /// The whole state.
    pub durable: Durable,
    /// Whether the coordinator's CA is in the state directory: it must be present where the state continues.
    pub owns_ca: bool,
}

impl Dump {
    /// Writes the dump, in an order that depends only on its content.
    ///
    /// # Errors
    /// Returns the errors of `out`.
    pub fn write(&self, mut out: impl Write) -> io::Result<()> {
        let Durable { jobs, sessions, bad_samples, last_session } = &self.durable;
        let head = Head {
            spdl_state: VERSION,
            program: env!("CARGO_PKG_VERSION").to_owned(),
            last_session: *last_session,
            owns_ca: self.owns_ca,
            jobs: jobs.len(),
            sessions: sessions.len(),
            bad_samples: bad_samples.len(),
        };
        line(&mut out, &head)?;
        jobs.iter().try_for_each(|record| line(&mut out, &DumpLine::Job(Box::new(record.clone()))))?;
        sessions.iter().try_for_each(|record| line(&mut out, &DumpLine::Session(record.clone())))?;
        bad_samples.iter().try_for_each(|record| line(&mut out, &DumpLine::BadSample(record.clone())))?;
        out.flush()
    }

    /// Reads the file at `path`.
    ///
    /// # Errors
    /// Returns [`StateStoreError::Dump`], which names the line, or [`StateStoreError::Io`].
    pub fn read(path: &Path) -> Result<Self, StateStoreError> {
        let io =
            |source: io::Error| StateStoreError::Io { path: path.to_owned(), action: "read", source: source.into() };
        let wrong =
            |number: usize, cause: String| StateStoreError::Dump { path: path.to_owned(), line: number + 1, cause };
        let mut lines = BufReader::new(fs::File::open(path).map_err(io)?).lines().enumerate();
        let Some((_, first)) = lines.next() else { return Err(wrong(0, "it is empty".to_owned())) };
        let head: Head = serde_json::from_str(&first.map_err(io)?)
            .map_err(|error| wrong(0, format!("it does not begin as a state file does: {error}")))?;
        if head.spdl_state != VERSION {
            return Err(wrong(0, format!("it has version {}; this program reads version {VERSION}", head.spdl_state)));
        }
        let mut durable = Durable { last_session: head.last_session, ..Durable::default() };
        let mut last = 0;
        for (number, text) in lines {
            last = number;
            match serde_json::from_str(&text.map_err(io)?).map_err(|error| wrong(number, error.to_string()))? {
                DumpLine::Job(record) => {
                    let name = record.job.name.clone();
                    let record = restored(*record).map_err(|cause| wrong(number, format!("job `{name}`: {cause}")))?;
                    durable.jobs.push(record);
                }
                DumpLine::Session(record) => durable.sessions.push(record),
                DumpLine::BadSample(record) => durable.bad_samples.push(record),
            }
        }
        let found = [durable.jobs.len(), durable.sessions.len(), durable.bad_samples.len()];
        let expected = [head.jobs, head.sessions, head.bad_samples];
        if found != expected {
            let cause = format!("jobs, sessions, bad samples: {found:?} are there, {expected:?} were written");
            return Err(wrong(last, cause));
        }
        Ok(Self { durable, owns_ca: head.owns_ca })
    }

    /// Returns the state to continue from later or elsewhere: session ids that may have been assigned meanwhile are
    /// skipped.
    #[must_use]
    pub fn continued(mut self) -> Self {
        self.durable.last_session += SKIPPED_SESSIONS;
        self
    }
}

fn line(out: &mut impl Write, record: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *out, record)?;
    out.write_all(b"\n")
}
