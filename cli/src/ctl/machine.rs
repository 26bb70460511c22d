//! The cores and the memory of this machine, as far as this process may use them.

use std::{fs, num::NonZeroUsize};

use spdl_worker::budget::DEFAULT_MEMORY_BYTES;

/// Returns the number of cores that this process may run on.
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, NonZeroUsize::get)
}

/// Returns three quarters of the free memory in bytes: the smaller of the machine's and the control group's. At least
/// the default of a worker.
pub(crate) fn spare_bytes() -> u64 {
    let group = group_bytes("memory.max").zip(group_bytes("memory.current"));
    let group = group.map(|(most, used)| most.saturating_sub(used));
    let free = meminfo("MemAvailable:").into_iter().chain(group).min();
    free.map_or(DEFAULT_MEMORY_BYTES, |free| (free / 4 * 3).max(DEFAULT_MEMORY_BYTES))
}

/// Returns the memory in bytes: the smaller of the machine's and what the control group may use; `None` if unknown.
pub(crate) fn memory_bytes() -> Option<u64> {
    meminfo("MemTotal:").into_iter().chain(group_bytes("memory.max")).min()
}

fn group_bytes(name: &str) -> Option<u64> {
    fs::read_to_string(format!("/sys/fs/cgroup/{name}")).ok()?.trim().parse().ok()
}

fn meminfo(name: &str) -> Option<u64> {
    line_bytes(&fs::read_to_string("/proc/meminfo").ok()?, name)
}

/// Returns a line of `/proc/meminfo`, in bytes.
fn line_bytes(meminfo: &str, name: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_is_the_kernels_number() {
        assert_eq!(
            line_bytes("MemTotal: 100 kB\nMemAvailable:   24576000 kB\n", "MemAvailable:"),
            Some(24_576_000 << 10)
        );
        assert_eq!(line_bytes("MemTotal: 100 kB\n", "MemAvailable:"), None);
        assert!(spare_bytes() >= DEFAULT_MEMORY_BYTES);
        assert!(memory_bytes().is_some_and(|bytes| bytes > 0));
    }
}
