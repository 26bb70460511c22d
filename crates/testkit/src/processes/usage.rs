//! CPU time and memory of processes, as `/proc` has them.

use std::{collections::BTreeMap, fs, time::Duration};

/// Returns the CPU time of a process and all its threads, including those that have ended, in the kernel's steps of 10
/// ms.
///
/// # Panics
/// If there is no such process.
pub fn cpu_time(pid: u32) -> Duration {
    ticks(&format!("/proc/{pid}/stat"), 11)
}

/// Returns the CPU time of this process's children that have ended and were waited for, in steps of 10 ms.
pub fn cpu_time_of_children() -> Duration {
    ticks("/proc/self/stat", 13)
}

/// Returns the CPU time of each thread of a process, by its id, in the kernel's steps of 10 ms.
///
/// # Panics
/// If there is no such process.
pub fn thread_cpu_times(pid: u32) -> BTreeMap<u32, Duration> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).expect("the process is there");
    let ids = threads.map(|thread| thread.expect("a thread").file_name().to_string_lossy().parse().expect("its id"));
    ids.map(|id: u32| (id, ticks(&format!("/proc/{pid}/task/{id}/stat"), 11))).collect()
}

/// Adds up two successive times of a process or thread. The first is `first` fields behind its name.
fn ticks(file: &str, first: usize) -> Duration {
    let stat = fs::read_to_string(file).expect("the process is there");
    // The name, which may contain blanks, ends with the last parenthesis.
    let (_, fields) = stat.rsplit_once(')').expect("a name in parentheses");
    let times = fields.split_whitespace().skip(first).take(2);
    Duration::from_millis(10 * times.map(|field| field.parse::<u64>().expect("a time")).sum::<u64>())
}

/// Returns the resident memory of a process, in bytes.
pub fn resident_bytes(pid: u32) -> u64 {
    memory_in_status(pid, "VmRSS:")
}

/// Returns the most resident memory that a process has had, in bytes.
pub fn peak_resident_bytes(pid: u32) -> u64 {
    memory_in_status(pid, "VmHWM:")
}

fn memory_in_status(pid: u32, name: &str) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).expect("the process is there");
    let line = text.lines().find(|line| line.starts_with(name)).expect("a line for this memory");
    line.split_whitespace().nth(1).expect("a number").parse::<u64>().expect("a number") * 1024
}
