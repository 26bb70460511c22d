//! The CPU time of a thread.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Returns the CPU time of this thread so far.
pub(crate) fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).expect("less than a second"))
}

/// Returns a time in thousandths of a second.
pub(crate) fn millis(time: Duration) -> f64 {
    1000.0 * time.as_secs_f64()
}
