//! A plan over 10^10 samples in 10^6 blocks stays small.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::disallowed_macros,
    reason = "a test measures its process"
)]

use std::{env, process::Command};

use spdl_order::{DatasetFacts, OrderParams, Plan};
use spdl_types::Fingerprint;

const SAMPLES_PER_BLOCK: u32 = 10_000;
const BLOCKS: usize = 1_000_000;
const LIMIT_BYTES: u64 = 200_000_000;
/// Is set in the process that measures itself.
const MEASURED: &str = "SPDL_TEST_MEASURED";

/// Returns the peak resident memory of this process, in bytes.
fn peak_resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() * 1024
}

#[test]
fn ten_billion_samples_in_a_million_blocks_take_less_than_200_megabytes() {
    if env::var_os(MEASURED).is_none() {
        // The memory of the tests beside it must not count, so the test runs again in a process of its own.
        let name = "memory::ten_billion_samples_in_a_million_blocks_take_less_than_200_megabytes";
        let mut alone = Command::new(env::current_exe().unwrap());
        let output = alone.args(["--exact", name, "--nocapture"]).env(MEASURED, "").output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        print!("{text}");
        assert!(output.status.success() && text.contains("1 passed"), "{}", output.status);
        return;
    }
    let blocks = vec![SAMPLES_PER_BLOCK; BLOCKS];
    let facts = DatasetFacts::new(Fingerprint(0), 10_000_000_000, BLOCKS as u64);
    let order = OrderParams::default_for(&facts, 4096, true);
    let plan = Plan::new(&blocks, 1, order).unwrap();
    assert_eq!(plan.samples(), 10_000_000_000);
    // Uses every lane in more epochs than are cached, so that everything that can be built has been built.
    for epoch in 0..5 {
        for lane in 0..u64::from(plan.lanes()) {
            let located = plan.at(epoch, plan.samples() / 2 / u64::from(plan.lanes()) * u64::from(plan.lanes()) + lane);
            let first = u64::from(located.block) * u64::from(SAMPLES_PER_BLOCK);
            assert_eq!(located.id.0, first + u64::from(located.index));
        }
    }
    let peak = peak_resident_bytes();
    println!("peak {peak} bytes resident, {} lanes", plan.lanes());
    assert!(peak < LIMIT_BYTES, "{peak} bytes resident");
}
