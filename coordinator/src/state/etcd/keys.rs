//! The keys in etcd and their values. All keys begin with the prefix of the cluster:
//!
//! ```text
//! PREFIX/leader                the leader; attached to its lease
//! PREFIX/format                format version of the other keys
//! PREFIX/written               empty; put with every write, so that its revision is that of the last write
//! PREFIX/last_session          the highest session id ever assigned
//! PREFIX/jobs/NAME             a job, as JSON
//! PREFIX/sessions/ID           a session, as JSON; the id has 20 digits, so that keys and ids have the same order
//! PREFIX/bad/JOB/SAMPLE        a bad sample; empty if only its id is kept
//! PREFIX/journal              changes that are being written in several transactions, as JSON; otherwise absent
//! PREFIX/parts/KEY/MADE/N      a value that is too long for one request; its own key then holds `split:MADE:COUNT`
//! ```

/// The keys of one cluster.
#[derive(Clone, Debug)]
pub(crate) struct EtcdKeys {
    prefix: String,
}

impl EtcdKeys {
    /// Creates the keys of a cluster; `prefix` has no slash at its end.
    pub(crate) const fn new(prefix: String) -> Self {
        Self { prefix }
    }

    pub(crate) fn leader(&self) -> String {
        format!("{}/leader", self.prefix)
    }

    pub(super) fn format(&self) -> String {
        format!("{}/format", self.prefix)
    }

    pub(super) fn written(&self) -> String {
        format!("{}/written", self.prefix)
    }

    pub(super) fn last_session(&self) -> String {
        format!("{}/last_session", self.prefix)
    }

    pub(super) fn journal(&self) -> String {
        format!("{}/journal", self.prefix)
    }

    /// Returns the folder of all jobs.
    pub(super) fn jobs(&self) -> String {
        format!("{}/jobs/", self.prefix)
    }

    pub(super) fn job(&self, name: &str) -> String {
        format!("{}{name}", self.jobs())
    }

    /// Returns the folder of all sessions.
    pub(super) fn sessions(&self) -> String {
        format!("{}/sessions/", self.prefix)
    }

    pub(super) fn session(&self, id: u64) -> String {
        format!("{}{id:020}", self.sessions())
    }

    /// Returns the folder of all bad samples.
    pub(super) fn bad_samples(&self) -> String {
        format!("{}/bad/", self.prefix)
    }

    /// Returns the folder of a job's bad samples; a job's name has no slash.
    pub(super) fn bad_samples_of(&self, job: &str) -> String {
        format!("{}{job}/", self.bad_samples())
    }

    pub(super) fn bad_sample(&self, job: &str, sample: u64) -> String {
        format!("{}{sample:020}", self.bad_samples_of(job))
    }

    /// Returns the folder of the parts of all long values.
    pub(super) fn all_parts(&self) -> String {
        format!("{}/parts/", self.prefix)
    }

    /// Returns the folder of the parts of a long value, from all writes.
    pub(super) fn parts(&self, key: &str) -> String {
        let key = key.strip_prefix(&self.prefix).expect("all keys begin with the prefix");
        format!("{}/parts{key}/", self.prefix)
    }

    /// Returns the folder of the parts from one write.
    pub(super) fn parts_made(&self, key: &str, made: &str) -> String {
        format!("{}{made}/", self.parts(key))
    }

    pub(super) fn part(&self, key: &str, made: &str, number: usize) -> String {
        format!("{}{number:06}", self.parts_made(key, made))
    }
}

/// Returns the end of the range of all keys that begin with `folder`, which ends with a slash.
pub(super) fn end_of(folder: &str) -> String {
    let path = folder.strip_suffix('/').expect("a folder ends with a slash");
    // `0` is the character after the slash.
    format!("{path}0")
}
