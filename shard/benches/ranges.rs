//! Measures whether it pays to read only what a crop needs: the restart segments of crop-ready pictures, the tiles and bands
//! of scalable ones. It counts bytes, reads and time for random resized crops of a dataset on a local disk, by block, by
//! picture and by range, with a cold and a warm page cache, and the pictures that a store of 50 MB/s gives by its bytes alone.
//!
//! `cargo bench -p spdl-shard --features store --bench ranges -- DATASET [ROUNDS]`, where DATASET is a folder that `spdl-ctl pack --crop-ready` or
//! `--scalable` has written.

use std::{
    fs::File,
    ops::Range,
    os::{fd::AsFd, unix::fs::FileExt},
    path::Path,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    thread,
    time::Instant,
};

use spdl_jpeg::{
    Axis, Jpeg, Limits, PictureRequest, ranges,
    scalable::ScalablePicture,
    testing::{Rect, XorShift, random_resized_crop, request},
};
use spdl_shard::store::DatasetStore;

/// Number of segments from one recorded place to the next.
const STEPS: [u32; 2] = [1, 8];
/// Two ranges with no more than this between them become one read, in bytes.
const GAPS: [u64; 4] = [0, 4 << 10, 16 << 10, 64 << 10];
/// Bytes per second of the store in the last column.
const STORE_BYTES: f64 = 50e6;
/// Number of reads in flight at once.
const READS_AT_ONCE: usize = 32;

/// A read: number of the shard, and range of bytes.
type ShardRead = (usize, Range<u64>);

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    let Some(folder) = arguments.first() else {
        eprintln!("which dataset? `spdl-ctl pack --crop-ready` or `--scalable` makes one");
        return;
    };
    let rounds = arguments.get(1).and_then(|rounds| rounds.parse().ok()).unwrap_or(5);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let (files, ways, pictures) = runtime.block_on(ways(folder));
    println!("{pictures} pictures; per picture, and pictures per second at the median of {rounds} rounds");
    println!("{:44} {:>8} {:>7} {:>10} {:>10} {:>10}", "way", "bytes", "reads", "cold", "warm", "50 MB/s");
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
        let (bytes, reads) = (per(bytes as f64), per(reads.len() as f64));
        println!("{name:44} {bytes:8.0} {reads:7.2} {cold:10.0} {warm:10.0} {:10.0}", STORE_BYTES / bytes);
    }
}

/// Returns the shards, the reads of each method, and the number of pictures.
async fn ways(folder: &str) -> (Vec<File>, Vec<(String, Vec<ShardRead>)>, usize) {
    let store = DatasetStore::open(folder).expect("a dataset");
    let manifest = store.manifest().await.expect("a manifest");
    let mut draw = XorShift::default();
    let (mut files, mut blocks, mut pictures) = (vec![], vec![], vec![]);
    let mut parts: Vec<(String, Vec<ShardRead>)> = vec![];
    for (number, shard) in (0..).zip(manifest.shards()) {
        let file = File::open(Path::new(folder).join(shard.url)).expect("a shard on a local disk");
        let at = files.len();
        let of_shard = manifest.shard_blocks(number).map(|block| manifest.block(block));
        blocks.extend(of_shard.map(|block| (at, block.offset..block.offset + block.bytes)));
        for record in store.index(&shard).await.expect("a record index").records() {
            let Some(field) = record.field("jpg") else { continue };
            let mut bytes = vec![0; field.bytes as usize];
            file.read_exact_at(&mut bytes, field.offset).expect("a picture");
            let Some(needed) = needed(&bytes, &mut draw) else { continue };
            pictures.push((at, field.offset..field.offset + u64::from(field.bytes)));
            for (name, ranges) in needed {
                for gap in GAPS {
                    let name = format!("{name}, gaps of {} KiB read", gap >> 10);
                    let known = parts.iter().position(|(known, _)| *known == name);
                    let way = known.unwrap_or_else(|| {
                        parts.push((name, vec![]));
                        parts.len() - 1
                    });
                    parts[way].1.extend(merged(&ranges, field.offset, gap).into_iter().map(|range| (at, range)));
                }
            }
        }
        files.push(file);
    }
    let count = pictures.len();
    let mut ways = vec![("whole blocks".to_owned(), blocks), ("whole pictures".to_owned(), pictures)];
    ways.extend(parts);
    (files, ways, count)
}

/// Returns the ranges that a crop of a picture needs, by the way of finding them; `None` if it is no picture to read in parts.
fn needed(bytes: &[u8], draw: &mut XorShift) -> Option<Vec<(String, Vec<Range<usize>>)>> {
    if ScalablePicture::is_packed(bytes) {
        let picture = ScalablePicture::open(bytes, Limits::default()).expect("a scalable picture");
        let crop = random_resized_crop(picture.size(), draw);
        let ways =
            [("tiles and bands", request(crop)), ("rows of tiles, bands", of_whole_rows(crop, picture.size()[0]))];
        return Some(
            ways.map(|(name, request)| (name.to_owned(), picture.ranges(&request).expect("a whole picture"))).into(),
        );
    }
    let jpeg = Jpeg::open(bytes, Limits::default()).ok()?;
    let request = request(random_resized_crop(jpeg.size(), draw));
    let of_step = |step| (format!("every {step}. segment known"), ranges(&jpeg, &request, step).expect("a whole JPEG"));
    Some(STEPS.map(of_step).into())
}

/// Returns the request for the crop's rows over the whole width of the picture, at the crop's scale.
fn of_whole_rows(crop @ [_, _, across, _]: Rect, width: u32) -> PictureRequest {
    let request = request(crop);
    let pixels = (u64::from(request.x.pixels) * u64::from(width) / u64::from(across)) as u32;
    let x = Axis { readable: (0, width), from: 0.0, extent: f64::from(width), pixels, ..request.x };
    PictureRequest { x, ..request }
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
