//! The fuzzer: libFuzzer around one of the targets of `spdl_fuzz_targets`, which `FUZZ_TARGET` names. `fuzz/run` starts
//! it.
#![no_main]

use std::{path::Path, sync::OnceLock};

use libfuzzer_sys::fuzz_target;
use spdl_fuzz_targets::{ALL, FuzzTarget, heap};

#[global_allocator]
static HEAP: heap::CountingAllocator = heap::CountingAllocator;

static TARGET: OnceLock<&FuzzTarget> = OnceLock::new();

/// Chooses the target. With `FUZZ_SEEDS`, writes the target's seeds to that folder and exits; with `FUZZ_LIST`, prints
/// the names of all targets and exits.
fn choose() {
    // A panic that the code under test catches itself, as around the picture decoders, is not a crash.
    drop(std::panic::take_hook());
    if std::env::var_os("FUZZ_LIST").is_some() {
        ALL.iter().for_each(|target| println!("{}", target.name));
        std::process::exit(0);
    }
    let name = std::env::var("FUZZ_TARGET").expect("FUZZ_TARGET names a target");
    let target = ALL.iter().find(|target| target.name == name);
    let target = target.unwrap_or_else(|| panic!("there is no target `{name}`"));
    if let Some(folder) = std::env::var_os("FUZZ_SEEDS") {
        for (number, seed) in (target.seeds)().iter().enumerate() {
            std::fs::write(Path::new(&folder).join(format!("seed-{number}")), seed).expect("a seed is written");
        }
        std::process::exit(0);
    }
    assert!(TARGET.set(target).is_ok(), "chosen once");
}

fuzz_target!(init: choose(), |data: &[u8]| {
    TARGET.get().expect("chosen at the start").run(data);
});
