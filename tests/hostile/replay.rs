//! Runs each fuzz target on all its kept inputs and seeds.

use std::{fs, hint::black_box};

use spdl_fuzz_targets::{ALL, heap};
use spdl_testkit::root;

#[test]
fn a_large_allocation_is_seen_even_when_it_is_given_back() {
    let most = heap::max_bytes(|| drop(black_box(vec![0_u8; 5 << 20])));
    assert!((5 << 20..6 << 20).contains(&most), "{most}");
}

#[test]
fn every_kept_input_is_read_without_harm() {
    let corpus = root().join("fuzz/corpus");
    for target in ALL {
        for seed in (target.seeds)() {
            target.run(&seed);
            // Also the first half, like a file or a connection that was cut off.
            target.run(&seed[..seed.len() / 2]);
        }
        for input in fs::read_dir(corpus.join(target.name)).into_iter().flatten() {
            let path = input.expect("the corpus can be listed").path();
            println!("{}", path.display());
            target.run(&fs::read(&path).expect("the corpus can be read"));
        }
    }
}

#[test]
fn every_folder_of_inputs_is_for_a_target() {
    let corpus = root().join("fuzz/corpus");
    for folder in fs::read_dir(corpus).expect("there is a corpus") {
        let name = folder.expect("the corpus can be listed").file_name();
        if name == "README.md" {
            continue;
        }
        assert!(ALL.iter().any(|target| name == target.name), "no target is called {name:?}");
    }
}
