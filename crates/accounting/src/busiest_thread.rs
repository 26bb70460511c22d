//! The CPU time of the threads that share some work. The busiest of them bounds the work where a part of it stays on one thread.

use std::thread::{self, ThreadId};

use parking_lot::Mutex;

/// At most so many threads are told apart; others are not counted.
const MAX_THREADS: usize = 256;

/// Returns the CPU time that this thread has used, in nanoseconds.
#[must_use]
pub fn thread_cpu_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

/// The CPU time of the busiest of the threads that share some work.
#[derive(Debug, Default)]
pub(crate) struct BusiestThread {
    times: Mutex<ThreadTimes>,
}

#[derive(Debug, Default)]
struct ThreadTimes {
    threads: Vec<ThreadTime>,
    /// What the busiest thread used between two readings, summed over all readings.
    busiest_ns: u64,
}

/// The CPU time of a thread, as it noted it last, and as much of that as was read.
#[derive(Debug)]
struct ThreadTime {
    thread: ThreadId,
    noted_ns: u64,
    read_ns: u64,
}

impl BusiestThread {
    /// Notes the CPU time of the calling thread, which does some of the work. What it used before its first call is not counted.
    pub(crate) fn note(&self) {
        self.times.lock().note(thread::current().id(), thread_cpu_ns());
    }

    /// Returns what the busiest thread used between two calls of this, summed over all calls, in nanoseconds.
    pub(crate) fn read(&self) -> u64 {
        self.times.lock().read()
    }
}

impl ThreadTimes {
    fn note(&mut self, thread: ThreadId, cpu_ns: u64) {
        if let Some(time) = self.threads.iter_mut().find(|time| time.thread == thread) {
            time.noted_ns = cpu_ns;
        } else if self.threads.len() < MAX_THREADS {
            self.threads.push(ThreadTime { thread, noted_ns: cpu_ns, read_ns: cpu_ns });
        }
    }

    fn read(&mut self) -> u64 {
        let used = self
            .threads
            .iter_mut()
            .map(|time| time.noted_ns.saturating_sub(std::mem::replace(&mut time.read_ns, time.noted_ns)));
        self.busiest_ns += used.max().unwrap_or(0);
        self.busiest_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_busiest_thread_counts_between_two_readings_and_what_it_did_before_does_not() {
        let threads: Vec<ThreadId> = (0..2).map(|_| thread::spawn(|| thread::current().id()).join().unwrap()).collect();
        let mut times = ThreadTimes::default();
        assert_eq!(times.read(), 0);
        times.note(threads[0], 5_000);
        times.note(threads[1], 9_000);
        assert_eq!(times.read(), 0, "only their first times are known");
        times.note(threads[0], 5_700);
        times.note(threads[1], 9_100);
        assert_eq!(times.read(), 700);
        times.note(threads[1], 9_400);
        assert_eq!(times.read(), 1_000, "another thread was the busiest");
        assert_eq!(times.read(), 1_000);
    }

    #[test]
    fn a_thread_that_works_uses_cpu_time() {
        let busiest = BusiestThread::default();
        busiest.note();
        assert_eq!(busiest.read(), 0);
        let before_ns = thread_cpu_ns();
        while thread_cpu_ns() < before_ns + 1_000_000 {}
        busiest.note();
        assert!(busiest.read() >= 1_000_000);
    }
}
