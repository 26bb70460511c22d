//! Measures the reading of video files on one thread: the requests and the time for all packets, what a table of them takes, and the time
//! to find the packets of a frame in it. Time is the thread's CPU time, the least of several rounds.
//!
//! Run `cargo bench -p spdl-media --bench videos -- FILE...`.

mod timing;

use std::time::Duration;

use spdl_media::{MediaError, Video, VideoReader, VideoTable, encode_video_table};
use timing::{cpu_time, millis};

const ROUNDS: u32 = 10;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let paths: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    if paths.is_empty() {
        eprintln!("which video files? `cargo bench -p spdl-media --bench videos -- FILE...`");
    }
    for path in paths {
        let file = std::fs::read(&path)?;
        let (video, requests, bytes) = read(&file)?;
        let reading = least(|| read(&file).map(|_| ()))?;
        let table_bytes = encode_video_table(&video.packets)?;
        let writing = least(|| encode_video_table(&video.packets).map(|_| ()))?;
        let frames = VideoTable::read(&table_bytes)?.frames();
        let mut nth = 0;
        let finding = least(|| {
            nth = (nth + 7919) % frames.max(1);
            find(&table_bytes, nth)
        })?;
        let count = video.packets.len();
        println!(
            "{path}: {} of {count} packets: {requests} requests for {bytes} of {} bytes, {:.3} ms; a table of {:.2} bytes a \
             packet, {:.3} ms; a frame {:.4} ms",
            video.track.codec,
            file.len(),
            millis(reading),
            ratio(table_bytes.len(), count),
            millis(writing),
            millis(finding),
        );
    }
    Ok(())
}

/// Reads a video, and returns the number of requests and their bytes.
fn read(file: &[u8]) -> Result<(Video, u32, u64), MediaError> {
    let mut reader = VideoReader::new(file.len() as u64);
    let (mut requests, mut bytes) = (0, 0);
    loop {
        let wanted = reader.wants();
        (requests, bytes) = (requests + 1, bytes + wanted.end - wanted.start);
        if let Some(video) = reader.read(&file[place(wanted.start)..place(wanted.end)])? {
            return Ok((video, requests, bytes));
        }
    }
}

/// Finds the packets that a frame needs.
fn find(bytes: &[u8], frame: u64) -> Result<(), MediaError> {
    let table = VideoTable::read(bytes)?;
    if let Some(blocks) = table.blocks_of(frame..frame + 1) {
        let at = table.place(blocks.clone());
        let blocks = table.read_blocks(blocks, &bytes[place(at.start)..place(at.end)])?;
        std::hint::black_box(blocks.needed(&[frame]));
    }
    Ok(())
}

fn least(mut work: impl FnMut() -> Result<(), MediaError>) -> Result<Duration, MediaError> {
    let mut least = Duration::MAX;
    for _ in 0..ROUNDS {
        let start = cpu_time();
        work()?;
        least = least.min(cpu_time() - start);
    }
    Ok(least)
}

fn place(byte: u64) -> usize {
    usize::try_from(byte).expect("a file in memory")
}

fn ratio(bytes: usize, packets: usize) -> f64 {
    let number = |count: usize| f64::from(u32::try_from(count).unwrap_or(u32::MAX));
    number(bytes) / number(packets)
}
