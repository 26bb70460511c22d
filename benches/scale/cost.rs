//! The cost of a piece of work.

use std::{ops::AddAssign, time::Instant};

/// CPU time of this process, and time that passed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cost {
    pub(crate) cpu_s: f64,
    pub(crate) wall_s: f64,
}

impl AddAssign for Cost {
    fn add_assign(&mut self, other: Self) {
        self.cpu_s += other.cpu_s;
        self.wall_s += other.wall_s;
    }
}

/// Measures the cost of `work`.
pub(crate) fn measure(work: impl FnOnce()) -> Cost {
    let (started, cpu_s) = (Instant::now(), cpu_s());
    work();
    Cost { cpu_s: self::cpu_s() - cpu_s, wall_s: started.elapsed().as_secs_f64() }
}

fn cpu_s() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Returns the resident memory of this process.
pub(crate) fn resident_bytes() -> u64 {
    spdl_testkit::processes::resident_bytes(std::process::id())
}
