//! Measures whether it pays to read only the restart segments that a crop needs: bytes, reads and time for random
//! resized crops of a crop-ready dataset on a local disk, by block, by picture and by range, with a cold and a warm
//! page cache.
//!
//! `cargo bench -p spdl-shard --features store --bench ranges -- DATASET [ROUNDS]`, where DATASET is a folder that `spdl-ctl pack --crop-ready` has written.

use std::{
    fs::File,
    ops::Range,
    os::{fd::AsFd, unix::fs::FileExt},
    path::Path,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    thread,
    time::Instant,
};

use spdl_jpeg::{Jpeg, Limits, ranges};
use spdl_shard::store::DatasetStore;
use spdl_testkit::crops::{XorShift, random_resized_crop, request};

/// Number of segments from one recorded place to the next.
const STEPS: [u32; 2] = [1, 8];
/// Two ranges with no more than this between them become one read, in bytes.
const GAPS: [u64; 3] = [0, 4 << 10, 64 << 10];
/// Number of reads in flight at once.
const READS_AT_ONCE: usize = 32;

/// A read: number of the shard, and range of bytes.
type ShardRead = (usize, Range<u64>);

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    let Some(folder) = arguments.first() else {
        eprintln!("which dataset? `spdl-ctl pack --crop-ready` makes one");
        return;
    };
    let rounds = arguments.get(1).and_then(|rounds| rounds.parse().ok()).unwrap_or(5);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let (files, ways, pictures) = runtime.block_on(ways(folder));
    println!("{pictures} pictures; per picture, and pictures per second at the median of {rounds} rounds");
    println!("{:44} {:>8} {:>7} {:>10} {:>10}", "way", "bytes", "reads", "cold", "warm");
    let mut rates = vec![[vec![], vec![]]; ways.len()];
    for _ in 0..rounds {
        for ((_, reads), rates) in ways.iter().zip(&mut rates) {
            for (at, rates) in rates.iter_mut().enumerate() {
                if at == 0 {
                    forget(&files);
                }
                let start = Instant::now();
                run(&files, reads);
                rates.push(pictures as f64 / start.elapsed().as_secs_f64());
            }
        }
    }
    for ((name, reads), mut rates) in ways.iter().zip(rates) {
        let bytes: u64 = reads.iter().map(|(_, range)| range.end - range.start).sum();
        rates.iter_mut().for_each(|rates| rates.sort_by(f64::total_cmp));
        let [cold, warm] = rates.map(|rates| rates[rounds / 2]);
        let per = |total: f64| total / pictures as f64;
        println!("{name:44} {:8.0} {:7.2} {cold:10.0} {warm:10.0}", per(bytes as f64), per(reads.len() as f64));
    }
}

/// Returns the shards, the reads of each method, and the number of pictures.
async fn ways(folder: &str) -> (Vec<File>, Vec<(String, Vec<ShardRead>)>, usize) {
    let store = DatasetStore::open(folder).expect("a dataset");
    let manifest = store.manifest().await.expect("a manifest");
    let mut draw = XorShift::default();
    let (mut files, mut blocks, mut pictures) = (vec![], vec![], vec![]);
    let mut parts = vec![vec![]; STEPS.len() * GAPS.len()];
    for (number, shard) in (0..).zip(manifest.shards()) {
        let file = File::open(Path::new(folder).join(shard.url)).expect("a shard on a local disk");
        let at = files.len();
        let of_shard = manifest.shard_blocks(number).map(|block| manifest.block(block));
        blocks.extend(of_shard.map(|block| (at, block.offset..block.offset + block.bytes)));
        for record in store.index(&shard).await.expect("a record index").records() {
            let Some(field) = record.field("jpg") else { continue };
            let mut bytes = vec![0; field.bytes as usize];
            file.read_exact_at(&mut bytes, field.offset).expect("a picture");
            let Ok(jpeg) = Jpeg::open(&bytes, Limits::default()) else { continue };
            pictures.push((at, field.offset..field.offset + u64::from(field.bytes)));
            let request = request(random_resized_crop(jpeg.size(), &mut draw));
            let needed = STEPS.map(|step| ranges(&jpeg, &request, step).expect("a whole JPEG"));
            let ways = needed.iter().flat_map(|ranges| GAPS.map(|gap| merged(ranges, field.offset, gap)));
            for (part, reads) in parts.iter_mut().zip(ways) {
                part.extend(reads.into_iter().map(|range| (at, range)));
            }
        }
        files.push(file);
    }
    let count = pictures.len();
    let mut ways = vec![("whole blocks".to_owned(), blocks), ("whole pictures".to_owned(), pictures)];
    let names = STEPS.iter().flat_map(|step| GAPS.map(|gap| (step, gap)));
    ways.extend(
        names.zip(parts).map(|((step, gap), reads)| {
            (format!("every {step}. segment known, gaps of {} KiB read", gap >> 10), reads)
        }),
    );
    (files, ways, count)
}

fn merged(ranges: &[Range<usize>], offset: u64, gap: u64) -> Vec<Range<u64>> {
    let mut merged: Vec<Range<u64>> = vec![];
    for range in ranges {
        let range = offset + range.start as u64..offset + range.end as u64;
        match merged.last_mut() {
            Some(last) if range.start <= last.end + gap => last.end = range.end,
            _ => merged.push(range),
        }
    }
    merged
}

/// Does all reads, several at once.
fn run(files: &[File], reads: &[ShardRead]) {
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..READS_AT_ONCE {
            scope.spawn(|| {
                let mut bytes = Vec::new();
                while let Some((file, range)) = reads.get(next.fetch_add(1, Relaxed)) {
                    bytes.resize((range.end - range.start) as usize, 0);
                    files[*file].read_exact_at(&mut bytes, range.start).expect("bytes of a shard");
                    std::hint::black_box(&bytes);
                }
            });
        }
    });
}

/// Drops the shards from the page cache, as far as the kernel complies.
fn forget(files: &[File]) {
    for file in files {
        file.sync_all().expect("a file on a disk");
        rustix::fs::fadvise(file.as_fd(), 0, None, rustix::fs::Advice::DontNeed).expect("a file on a disk");
    }
}
