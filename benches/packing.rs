//! Measures the speed of `spdl-ctl pack` on one core, and how it scales with parts: two parts at once with a core each,
//! compared with one process that packs everything on one core. Two processes that pack a source each show how fast the
//! machine can run two at once.
//!
//! `cargo bench --bench packing -- [--pictures N] [--rounds N]`

mod arguments;

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Instant,
};

use spdl_testkit::{
    median,
    processes::{cpu_time_of_children, ctl, program, write_pictures},
};

/// The time that processes took.
#[derive(Clone, Copy)]
struct Cost {
    wall_s: f64,
    cpu_s: f64,
}

/// Runs `spdl-ctl pack` for each list of arguments at once, each with a core of its own.
fn pack(packs: &[Vec<String>]) -> Cost {
    let (begun, cpu) = (Instant::now(), cpu_time_of_children());
    let children: Vec<_> = packs
        .iter()
        .enumerate()
        .map(|(core, arguments)| {
            let mut command = Command::new("taskset");
            command.args(["-c", &core.to_string()]).arg(program()).arg("pack").args(arguments);
            command.stdout(Stdio::null()).spawn().expect("taskset of util-linux")
        })
        .collect();
    for mut child in children {
        assert!(child.wait().expect("a child").success(), "{packs:?}");
    }
    Cost { wall_s: begun.elapsed().as_secs_f64(), cpu_s: (cpu_time_of_children() - cpu).as_secs_f64() }
}

/// Returns the bytes of the files in a folder of folders.
fn bytes(folder: &Path) -> u64 {
    let entries = |folder: &Path| fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    let files = entries(folder).flat_map(|class| entries(&class).collect::<Vec<_>>());
    files.map(|file| file.metadata().expect("a file").len()).sum()
}

fn main() {
    if !arguments::request_stats() {
        return;
    }
    let (pictures, rounds) = (arguments::number("--pictures", 4000), arguments::number("--rounds", 3));
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = |name: &str| -> PathBuf { folder.path().join(name) };
    write_pictures(&path("source"), pictures);
    let megabytes = bytes(&path("source")) as f64 / 1e6;
    println!("{pictures} pictures, {megabytes:.0} MB; one core for each process; medians of {rounds} rounds");
    for (name, further) in [("as they are", &[][..]), ("crop-ready", &["--crop-ready"]), ("scalable", &["--scalable"])]
    {
        let arguments = |to: &str, part: &str| -> Vec<String> {
            let paths = [path("source"), path(to)].map(|path| path.display().to_string());
            let options = ["--json", "--name=set", "--shard-size=16MiB", "--part", part];
            paths.into_iter().chain(options.iter().chain(further).map(|&word| word.to_owned())).collect()
        };
        let [mut rates, mut scaled, mut machine, mut added] = [const { Vec::new() }; 4];
        for _ in 0..rounds {
            let one = pack(&[arguments("one", "0/1")]);
            let parts = pack(&[arguments("parts", "0/2"), arguments("parts", "1/2")]);
            let both = pack(&[arguments("left", "0/1"), arguments("right", "0/1")]);
            rates.push(megabytes / one.cpu_s);
            scaled.push(one.wall_s / parts.wall_s / 2.0);
            machine.push(one.wall_s / both.wall_s);
            added.push(parts.cpu_s / one.cpu_s);
            let merged = ctl().arg("merge").arg(path("parts")).stdout(Stdio::null()).status().expect("it starts");
            assert!(merged.success());
            for made in ["one", "parts", "left", "right"] {
                fs::remove_dir_all(path(made)).expect("a folder");
            }
        }
        println!(
            "{name}: {:.0} MB for a second of CPU; two parts: {:.2} of linear, CPU {:.2} of one part's; two sources: {:.2} of linear",
            median(rates),
            median(scaled),
            median(added),
            median(machine),
        );
    }
}
