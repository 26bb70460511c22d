//! Keeps the process within its budget of cores: the decoding threads pause for any excess.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::{Duration, Instant},
};

use spdl_pipeline::stats::{StageUnits, UnitState, nanoseconds};

use crate::budget::Budget;

/// Shortest pause; shorter ones are added up, as the kernel adds 50 us to each.
const MIN_PAUSE: Duration = Duration::from_millis(1);
/// Lower bound of the cores that are left to decoding.
const MIN_CORES: f64 = 0.01;
/// How often a worker measures the CPU time of its other threads.
const MEASURE_INTERVAL: Duration = Duration::from_millis(250);
/// Weight of the newest measurement in the average.
const NEWEST_WEIGHT: f64 = 0.25;

/// Computes the pauses that keep the decoding threads within the budget.
#[derive(Debug)]
pub(crate) struct CpuThrottle {
    cores: f64,
    threads: f64,
    due_ns: AtomicU64,
    /// Average number of cores that all other threads use: the bits of an `f64`.
    others: AtomicU64,
}

impl CpuThrottle {
    pub(crate) fn new(budget: &Budget) -> Self {
        Self {
            cores: budget.cores,
            threads: budget.threads().get() as f64,
            due_ns: AtomicU64::new(0),
            others: AtomicU64::new(0),
        }
    }

    /// Returns how long a decoding thread has to pause after it was busy for `busy`. A pause below [`MIN_PAUSE`] is
    /// added to the next one, of whichever thread.
    pub(crate) fn pause_after(&self, busy: Duration) -> Duration {
        let share = (self.cores - self.others().max(0.0)).max(MIN_CORES);
        let excess = (self.threads / share - 1.0).max(0.0);
        if excess == 0.0 {
            return Duration::ZERO;
        }
        let due_ns = nanoseconds(busy.mul_f64(excess));
        if self.due_ns.fetch_add(due_ns, Relaxed) + due_ns < nanoseconds(MIN_PAUSE) {
            return Duration::ZERO;
        }
        Duration::from_nanos(self.due_ns.swap(0, Relaxed))
    }

    fn others(&self) -> f64 {
        f64::from_bits(self.others.load(Relaxed))
    }

    /// Records that the process used `cpu` while its decoding threads were busy for `busy`, during `over`. If the
    /// decoding threads had to wait for a core, the value for the others is negative; the average evens this out.
    fn observe(&self, cpu: Duration, busy: Duration, over: Duration) {
        let others = (cpu.as_secs_f64() - busy.as_secs_f64()) / over.as_secs_f64();
        let average = (1.0 - NEWEST_WEIGHT).mul_add(self.others(), NEWEST_WEIGHT * others);
        self.others.store(average.to_bits(), Relaxed);
    }

    /// Measures for ever what the process uses besides `decode`. Only for a process that does nothing else: in a
    /// training process, the trainer's own CPU time must not slow down the loader.
    pub(crate) async fn watch(&self, decode: &StageUnits) -> std::convert::Infallible {
        let now = || {
            let now = Instant::now();
            (now, process_cpu_time(), decode.read(now).0.of(UnitState::Busy))
        };
        let mut before = now();
        loop {
            tokio::time::sleep(MEASURE_INTERVAL).await;
            let after = now();
            self.observe(after.1.saturating_sub(before.1), after.2 - before.2, after.0 - before.0);
            before = after;
        }
    }
}

/// Returns the CPU time of this process, without its children.
pub(crate) fn process_cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.try_into().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    const SAMPLE: Duration = Duration::from_micros(900);

    fn throttle(cores: f64) -> CpuThrottle {
        CpuThrottle::new(&Budget { cores, ..Budget::default() })
    }

    /// Returns the fraction of the time in which the throttle lets its threads work.
    fn busy_part(throttle: &CpuThrottle) -> f64 {
        let rest: Duration = (0..10_000).map(|_| throttle.pause_after(SAMPLE)).sum();
        let busy = 10_000 * SAMPLE;
        busy.as_secs_f64() / (busy + rest).as_secs_f64()
    }

    fn close(actual: f64, expected: f64) -> bool {
        (actual - expected).abs() < 0.001
    }

    #[test]
    fn threads_rest_where_they_are_more_than_the_cores() {
        for (cores, part) in
            [(0.0, 0.01), (0.5, 0.5), (0.8, 0.8), (1.0, 1.0), (1.9, 0.95), (2.0, 1.0), (7.5, 7.5 / 8.0)]
        {
            let actual = busy_part(&throttle(cores));
            assert!(close(actual, part), "{cores} cores: {actual}");
        }
    }

    #[test]
    fn what_the_other_threads_use_is_left_out_of_what_the_decoding_threads_may() {
        let over = Duration::from_secs(1);
        for (cores, part) in [(0.5, 0.2), (1.0, 0.7), (1.2, 0.45), (1.9, 0.8), (2.0, 0.85), (4.0, 3.7 / 4.0)] {
            let throttle = throttle(cores);
            (0..100).for_each(|_| throttle.observe(over.mul_f64(0.5), over.mul_f64(0.2), over));
            let actual = busy_part(&throttle);
            assert!(close(actual, part), "{cores} cores: {actual}");
        }
    }

    #[test]
    fn threads_that_wait_for_a_core_take_nothing_from_the_budget() {
        let throttle = throttle(1.0);
        let over = Duration::from_secs(1);
        (0..100).for_each(|_| throttle.observe(over.mul_f64(0.5), over.mul_f64(0.9), over));
        assert!(close(busy_part(&throttle), 1.0));
    }

    #[test]
    fn short_rests_are_put_together() {
        let throttle = throttle(0.9);
        let rests: Vec<Duration> =
            (0..1000).map(|_| throttle.pause_after(SAMPLE)).filter(|rest| !rest.is_zero()).collect();
        assert!(rests.len() > 50 && rests.iter().all(|rest| *rest >= MIN_PAUSE), "{rests:?}");
    }

    #[tokio::test]
    async fn a_process_that_works_besides_decoding_is_seen_to() {
        let (throttle, decode) = (throttle(1.0), Arc::<StageUnits>::default());
        let working = async {
            while throttle.others() < 0.05 {
                std::hint::black_box((0..1_000_000u64).sum::<u64>());
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            never = throttle.watch(&decode) => match never {},
            () = working => {}
        }
    }
}
