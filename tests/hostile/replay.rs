//! Runs each fuzz target on all its kept inputs and seeds.

use std::{fs, path::Path};

use crate::targets;

#[test]
fn every_kept_input_is_read_without_harm() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus");
    for target in targets::ALL {
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
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus");
    for folder in fs::read_dir(corpus).expect("there is a corpus") {
        let name = folder.expect("the corpus can be listed").file_name();
        if name == "README.md" {
            continue;
        }
        assert!(targets::ALL.iter().any(|target| name == target.name), "no target is called {name:?}");
    }
}
