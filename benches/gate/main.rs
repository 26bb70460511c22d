//! The program whose instructions `benches/gate/run` counts. It repeats one path of the code a given number of times; the driver
//! subtracts a short run from a long one, so that starting up does not count.
//!
//! usage: gate prepare FOLDER | gate list | gate PATH FOLDER REPETITIONS
//!
//! Everything random has a fixed seed. A path that needs several threads works on one item at a time.

#[path = "../columns.rs"]
mod columns;
mod data;
mod memory;
#[path = "../numpy/mod.rs"]
mod numpy;
mod transport;

use std::{env, path::Path};

/// A path of the code.
struct GatedPath {
    name: &'static str,
    /// The name of one repetition.
    unit: &'static str,
    /// The repetitions of a short run, and how many more a long one has.
    repetitions: [u64; 2],
    /// Repeats the path. `prepare` has filled the folder.
    run: fn(&Path, u64),
    /// The functions whose instructions count, with those of their callees. If there are none, the whole process
    /// counts.
    functions: &'static [&'static str],
}

impl GatedPath {
    const fn new(name: &'static str, unit: &'static str, repetitions: [u64; 2], run: fn(&Path, u64)) -> Self {
        Self { name, unit, repetitions, run, functions: &[] }
    }
}

const FEW: [u64; 2] = [1, 2];
const MANY: [u64; 2] = [100, 2_000];

const PATHS: [GatedPath; 10] = [
    GatedPath::new("order", "batch of 32 positions", MANY, memory::order),
    GatedPath::new("feed-plain", "batch of 64", FEW, |folder, count| data::feed_pictures(folder, "plain", count)),
    GatedPath::new("feed-crop-ready", "batch of 64", FEW, |folder, count| {
        data::feed_pictures(folder, "crop-ready", count)
    }),
    GatedPath::new("feed-scalable", "batch of 64", FEW, |folder, count| data::feed_pictures(folder, "scalable", count)),
    GatedPath::new("feed-long", "batch of 4", [1, 8], data::feed_long),
    GatedPath::new("codec-heartbeat", "message", MANY, transport::heartbeats),
    GatedPath::new("codec-attach", "message", MANY, transport::attaches),
    GatedPath::new("hand-over", "batch", MANY, transport::hand_over),
    GatedPath::new("engine", "item", [1_000, 20_000], memory::engine),
    GatedPath { functions: &data::PACKING, ..GatedPath::new("pack", "64 pictures", [1, 1], data::pack) },
];

fn main() {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["prepare", folder] => data::prepare(Path::new(folder)),
        ["list"] => {
            for GatedPath { name, unit, repetitions: [short, more], functions, .. } in PATHS {
                println!("{name}\t{unit}\t{short}\t{more}\t{}", functions.join(" "));
            }
        }
        [name, folder, repetitions] => {
            let path = PATHS.iter().find(|path| path.name == name).expect("the name of a path");
            (path.run)(Path::new(folder), repetitions.parse().expect("a number"));
            println!("{}", vector_instructions());
        }
        // `cargo bench` starts every target.
        _ => println!("benches/gate/run starts this program"),
    }
}

/// Returns the widest vector instructions that this code may use here. Valgrind offers fewer than some processors have.
fn vector_instructions() -> &'static str {
    #[cfg(target_arch = "x86_64")]
    return if is_x86_feature_detected!("avx2") {
        "avx2"
    } else if is_x86_feature_detected!("ssse3") {
        "ssse3"
    } else {
        "sse2"
    };
    #[cfg(not(target_arch = "x86_64"))]
    "baseline"
}
