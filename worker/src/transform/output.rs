//! Passes what the functions of a job print on to standard error, but no more than a log has room for.

use std::{
    io::{self, PipeReader, Read, Write},
    os::fd::{AsFd, BorrowedFd},
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec};

/// Bytes that the functions of a job print at once before some are left out. When raised, a function that prints its samples fills the
/// log sooner; when lowered, a long traceback is cut.
const BURST_BYTES: usize = 1 << 20;
/// Bytes that they print per second after that: below 1.5 GB a day.
const BYTES_PER_S: usize = 16 << 10;
/// Bytes that are read at once, and passed on or left out as one: the capacity of a pipe.
const CHUNK_BYTES: usize = 64 << 10;

/// The output of one process and of what it has started. Nothing reads it between calls: a process that prints then
/// waits once the pipe is full.
#[derive(Debug)]
pub(super) struct ProcessOutput {
    /// `None` once all writers have closed it, or reading it has failed.
    pipe: Option<PipeReader>,
    limit: Arc<OutputLimit>,
}

impl ProcessOutput {
    pub(super) const fn new(pipe: PipeReader, limit: Arc<OutputLimit>) -> Self {
        Self { pipe: Some(pipe), limit }
    }

    /// Returns the pipe, to wait until there is something in it.
    pub(super) fn pipe(&self) -> Option<BorrowedFd<'_>> {
        self.pipe.as_ref().map(AsFd::as_fd)
    }

    /// Passes on the bytes that are in the pipe, without waiting for more: at most one chunk, because a process may
    /// never stop printing.
    pub(super) fn pass_on(&mut self) {
        let Some(pipe) = &mut self.pipe else { return };
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        if rustix::event::poll(&mut [PollFd::new(&*pipe, PollFlags::IN)], Some(&now)) != Ok(1) {
            return;
        }
        let mut chunk = vec![0; CHUNK_BYTES];
        match pipe.read(&mut chunk) {
            Ok(0) => self.pipe = None,
            Ok(count) => self.limit.print(&chunk[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => self.pipe = None,
        }
    }
}

/// Limits how much the processes of one job print together.
#[derive(Debug)]
pub(super) struct OutputLimit {
    job: String,
    allowance: Mutex<Allowance>,
}

impl OutputLimit {
    pub(super) fn new(job: &str) -> Arc<Self> {
        let allowance = Allowance { bytes: BURST_BYTES, at: Instant::now(), left_out_bytes: 0 };
        Arc::new(Self { job: job.to_owned(), allowance: Mutex::new(allowance) })
    }

    /// Prints to standard error, because standard output may have readers that expect no output of a function.
    fn print(&self, chunk: &[u8]) {
        let taken = self.allowance.lock().take(chunk.len(), Instant::now());
        match taken {
            // Where standard error is closed, nobody reads what functions print.
            PrintDecision::All => drop(io::stderr().write_all(chunk)),
            PrintDecision::Nothing { report: Some(left_out_bytes) } => tracing::warn!(
                job = self.job,
                left_out_bytes,
                "the functions of the job print more than the log takes, {BURST_BYTES} bytes and then {BYTES_PER_S} per second: the rest is left out",
            ),
            PrintDecision::Nothing { report: None } => {}
        }
    }
}

/// Bytes that may be printed, which grow with time.
#[derive(Debug)]
struct Allowance {
    bytes: usize,
    at: Instant,
    left_out_bytes: u64,
}

/// The decision whether a chunk is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PrintDecision {
    All,
    /// The chunk is left out. `report`: the total of bytes that were left out, whenever that has doubled.
    Nothing {
        report: Option<u64>,
    },
}

impl Allowance {
    fn take(&mut self, count: usize, now: Instant) -> PrintDecision {
        let since = now.saturating_duration_since(self.at);
        let earned = since.as_secs_f64() * BYTES_PER_S as f64;
        if self.bytes + earned as usize >= BURST_BYTES {
            (self.bytes, self.at) = (BURST_BYTES, now);
        } else if earned >= 1.0 {
            self.bytes += earned as usize;
            self.at += Duration::from_secs_f64(earned.floor() / BYTES_PER_S as f64);
        }
        if let Some(left) = self.bytes.checked_sub(count) {
            self.bytes = left;
            return PrintDecision::All;
        }
        let before = self.left_out_bytes;
        self.left_out_bytes += count as u64;
        let report = (before.checked_ilog2() != self.left_out_bytes.checked_ilog2()).then_some(self.left_out_bytes);
        PrintDecision::Nothing { report }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_is_bounded_in_each_span_of_time_and_what_is_left_out_is_counted() {
        let start = Instant::now();
        let mut allowance = Allowance { bytes: BURST_BYTES, at: start, left_out_bytes: 0 };
        let (mut printed, mut left_out, mut reports) = (0, 0, Vec::new());
        for millisecond in 0..100_000 {
            match allowance.take(1000, start + Duration::from_millis(millisecond)) {
                PrintDecision::All => printed += 1000,
                PrintDecision::Nothing { report } => {
                    left_out += 1000;
                    reports.extend(report);
                }
            }
        }
        let most = BURST_BYTES + 100 * BYTES_PER_S;
        assert!((most - 2000..=most).contains(&printed), "{printed} of {most}");
        assert_eq!(allowance.left_out_bytes, left_out);
        assert!(reports[0] == 1000 && reports.len() < 20, "{reports:?}");
        let later = start + Duration::from_secs(1000);
        assert_eq!(allowance.take(BURST_BYTES, later), PrintDecision::All);
        assert!(matches!(allowance.take(1, later), PrintDecision::Nothing { .. }));
    }
}
