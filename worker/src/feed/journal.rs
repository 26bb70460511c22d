//! Records which samples and blocks are being decoded, in a file that survives the process however it is killed. What was
//! being decoded at several deaths of the worker in a row is quarantined, a sample as a bad sample and a block with all of its
//! samples, so that it does not kill one worker after another.
//!
//! Each sample or block that is being decoded has a mark at a place of its own in the file. Marks are never synced: the
//! page cache survives the process, and what crashes the whole machine is out of scope.

use std::{
    collections::HashMap,
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Read, Write},
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

use parking_lot::Mutex;
use spdl_feed::cache::BlockKey;
use spdl_process::lock::lock;
use spdl_types::{Fingerprint, SampleId};

/// Number of deaths in a row after which a sample or a block is quarantined. After its first death it is decoded alone: either it
/// is cleared, or the next death cannot be caused by another one.
pub(crate) const DEATHS: u32 = 3;
/// Size of a mark: what it belongs to, its number, checksum.
const MARK_BYTES: usize = 28;
/// Maximum number of marks that are read back.
const MAX_MARKS: usize = 1024;
/// Start of the first line of the list of suspects; the rest of the line is the circumstances under which the list is
/// valid.
const HEADER: &str = "spdl suspects 1";

/// What is being decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct InDecoding {
    /// The job of a sample, or the dataset of a block. No two of them have the same fingerprint.
    of: Fingerprint,
    /// Number of the sample or the block.
    number: u64,
}

impl InDecoding {
    pub(crate) const fn sample(job: Fingerprint, sample: SampleId) -> Self {
        Self { of: job, number: sample.0 }
    }

    pub(crate) const fn block(BlockKey { dataset, block }: BlockKey) -> Self {
        Self { of: dataset, number: block as u64 }
    }
}

/// Marks what is being decoded, and knows the suspects. Created once per process.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    /// The file of the marks; `None` if nothing is recorded.
    file: Option<File>,
    /// Set on an orderly shutdown; marks are ignored from then on.
    is_closed: AtomicBool,
    suspects: Mutex<Suspects>,
}

#[derive(Debug, Default)]
struct Suspects {
    path: PathBuf,
    circumstances: String,
    deaths: HashMap<InDecoding, u32>,
}

/// How a sample or a block has to be treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Suspicion {
    /// Decode it as usual.
    None,
    /// Decode it while nothing else is being decoded.
    Alone,
    /// Do not decode it: the worker died this many times on it.
    Quarantined(u32),
}

impl Journal {
    /// Opens the journal: marks in `path`, suspects in a file beside it. The records of an earlier process count only
    /// if the circumstances, such as the memory budget, are the same.
    ///
    /// # Errors
    /// An I/O error if the files cannot be written, or if another process uses them: its samples have not killed it.
    pub(crate) fn open(path: &Path, circumstances: &str) -> io::Result<Self> {
        let beside = path.with_extension("suspects");
        let mut suspects = Suspects { circumstances: circumstances.to_owned(), ..Suspects::default() };
        suspects.read(&fs::read_to_string(&beside).unwrap_or_default());
        suspects.path = beside;
        let file = open_alone(path)?;
        let mut marks = Vec::new();
        (&file).take((MAX_MARKS * MARK_BYTES) as u64).read_to_end(&mut marks)?;
        for unit in marks.as_chunks::<MARK_BYTES>().0.iter().filter_map(unmarked) {
            let deaths = suspects.deaths.entry(unit).or_default();
            *deaths += 1;
            let InDecoding { of, number } = unit;
            tracing::warn!(number, %of, deaths, "the worker died while it decoded this sample of a job, or this block of a dataset");
        }
        if !suspects.deaths.is_empty() {
            suspects.write()?;
        }
        file.set_len(0)?;
        Ok(Self { file: Some(file), is_closed: AtomicBool::new(false), suspects: Mutex::new(suspects) })
    }

    /// Returns whether any sample or block is suspected.
    pub(crate) fn has_suspects(&self) -> bool {
        !self.suspects.lock().deaths.is_empty()
    }

    /// Returns how a sample or a block has to be treated.
    pub(crate) fn suspicion(&self, unit: InDecoding) -> Suspicion {
        match self.suspects.lock().deaths.get(&unit).copied() {
            None => Suspicion::None,
            Some(deaths) if deaths < DEATHS => Suspicion::Alone,
            Some(deaths) => Suspicion::Quarantined(deaths),
        }
    }

    /// Writes the mark at place number `place`: `unit` is being decoded, or, with `None`, nothing is.
    pub(crate) fn mark(&self, place: usize, unit: Option<InDecoding>) {
        let Some(file) = self.file.as_ref().filter(|_| !self.is_closed.load(Relaxed)) else { return };
        let mark = unit.map_or([0; MARK_BYTES], marked);
        // If the mark cannot be written, the sample or block is decoded without one.
        let _ = file.write_all_at(&mark, (place * MARK_BYTES) as u64);
    }

    /// Clears a suspect that was decoded, or found to be bad, without a death.
    pub(crate) fn clear(&self, unit: InDecoding) {
        let mut suspects = self.suspects.lock();
        if suspects.deaths.remove(&unit).is_some()
            && let Err(error) = suspects.write()
        {
            tracing::warn!(path = %suspects.path.display(), %error, "the list of suspects cannot be written");
        }
    }

    /// Notes an orderly shutdown: what is being decoded is not suspect.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Relaxed);
        if let Some(file) = &self.file {
            let _ = file.set_len(0);
        }
    }
}

impl Suspects {
    fn header(&self) -> String {
        format!("{HEADER} {}", self.circumstances)
    }

    fn read(&mut self, text: &str) {
        let mut lines = text.lines();
        if lines.next() != Some(&self.header()) {
            return;
        }
        for line in lines {
            let mut words = line.split(' ');
            let of = words.next().and_then(|word| u128::from_str_radix(word, 16).ok());
            let number = words.next().and_then(|word| word.parse().ok());
            let deaths = words.next().and_then(|word| word.parse().ok());
            if let (Some(of), Some(number), Some(deaths)) = (of, number, deaths) {
                self.deaths.insert(InDecoding { of: Fingerprint(of), number }, deaths);
            }
        }
    }

    fn write(&self) -> io::Result<()> {
        let mut text = self.header() + "\n";
        for (InDecoding { of, number }, deaths) in &self.deaths {
            text += &format!("{:032x} {number} {deaths}\n", of.0);
        }
        let fresh = self.path.with_extension("suspects-new");
        let file = open_no_link(&fresh)?;
        file.set_len(0)?;
        (&file).write_all(text.as_bytes())?;
        fs::rename(&fresh, &self.path)
    }
}

/// Opens a file for writing and creates it if it does not exist. Does not follow a symbolic link, which another user
/// may have put there.
fn open_no_link(path: &Path) -> io::Result<File> {
    let no_follow = rustix::fs::OFlags::NOFOLLOW.bits() as i32;
    OpenOptions::new().create(true).read(true).write(true).truncate(false).custom_flags(no_follow).open(path)
}

/// Opens a file like [`open_no_link`] and locks it against other processes.
fn open_alone(path: &Path) -> io::Result<File> {
    let file = open_no_link(path)?;
    lock(&file).map_err(|error| match error {
        TryLockError::WouldBlock => io::Error::other("another process has it"),
        TryLockError::Error(error) => error,
    })?;
    Ok(file)
}

fn marked(InDecoding { of, number }: InDecoding) -> [u8; MARK_BYTES] {
    let mut mark = [0; MARK_BYTES];
    mark[..16].copy_from_slice(&of.0.to_le_bytes());
    mark[16..24].copy_from_slice(&number.to_le_bytes());
    let checksum = crc32c::crc32c(&mark[..24]);
    mark[24..].copy_from_slice(&checksum.to_le_bytes());
    mark
}

fn unmarked(mark: &[u8; MARK_BYTES]) -> Option<InDecoding> {
    let (key, checksum) = mark.split_at(24);
    if crc32c::crc32c(key).to_le_bytes() != checksum {
        return None;
    }
    let (of, number) = key.split_first_chunk::<16>()?;
    let of = Fingerprint(u128::from_le_bytes(*of));
    Some(InDecoding { of, number: u64::from_le_bytes(number.try_into().ok()?) })
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOB: Fingerprint = Fingerprint(7 << 100);

    const fn sample(sample: SampleId) -> InDecoding {
        InDecoding::sample(JOB, sample)
    }

    #[test]
    fn a_sample_that_was_there_at_several_deaths_in_a_row_is_quarantined_and_others_are_cleared() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("worker.decoding");
        let open = || Journal::open(&path, "1 GiB").unwrap();
        let (culprit, other) = (SampleId(3), SampleId(0));
        for deaths in 0..DEATHS {
            let journal = open();
            let expected = if deaths == 0 { Suspicion::None } else { Suspicion::Alone };
            assert_eq!(journal.suspicion(sample(culprit)), expected, "after {deaths} deaths");
            assert_eq!(journal.suspicion(sample(other)), expected);
            journal.mark(0, Some(sample(other)));
            journal.mark(1, Some(sample(SampleId(9))));
            journal.mark(1, None);
            journal.mark(2, Some(sample(culprit)));
            // Dropping the journal without closing it is what a killed process does.
        }
        let journal = open();
        assert_eq!(journal.suspicion(sample(culprit)), Suspicion::Quarantined(DEATHS));
        assert_eq!(
            journal.suspicion(InDecoding::block(BlockKey { dataset: Fingerprint(1), block: 3 })),
            Suspicion::None,
            "a block of a dataset"
        );
        assert_eq!(journal.suspicion(sample(SampleId(9))), Suspicion::None, "it was done");
        journal.clear(sample(other));
        journal.mark(0, Some(sample(other)));
        journal.close();
        drop(journal);
        assert_eq!(open().suspicion(sample(other)), Suspicion::None, "the last process ended in order");
        assert_eq!(open().suspicion(sample(culprit)), Suspicion::Quarantined(DEATHS));
        let roomier = Journal::open(&path, "2 GiB").unwrap();
        assert_eq!(roomier.suspicion(sample(culprit)), Suspicion::None, "there is more memory");
    }

    #[test]
    fn what_a_living_worker_decodes_is_not_taken_for_the_cause_of_its_death() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("worker.decoding");
        let journal = Journal::open(&path, "1 GiB").unwrap();
        journal.mark(0, Some(sample(SampleId(3))));
        let error = Journal::open(&path, "1 GiB").unwrap_err();
        assert_eq!(error.to_string(), "another process has it");
        drop(journal);
        assert_eq!(Journal::open(&path, "1 GiB").unwrap().suspicion(sample(SampleId(3))), Suspicion::Alone);
    }

    #[test]
    fn damaged_files_are_no_suspicion_and_without_a_file_nothing_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("worker.decoding");
        fs::write(&path, [0xa5; 100]).unwrap();
        fs::write(path.with_extension("suspects"), "spdl suspects 1 x\nzz 3\n\u{1} 4 5 6 7").unwrap();
        let journal = Journal::open(&path, "x").unwrap();
        assert!(journal.suspects.lock().deaths.is_empty());
        let none = Journal::default();
        none.mark(0, Some(sample(SampleId(1))));
        none.clear(sample(SampleId(1)));
        assert_eq!(none.suspicion(sample(SampleId(1))), Suspicion::None);
    }
}
