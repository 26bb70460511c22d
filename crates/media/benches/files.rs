//! Measures the decoding of sound files on one thread, whole and two seconds of their middle. Time is the thread's CPU time; the least of
//! several rounds counts, so that other load on the machine matters less. `files.py` beside it measures `soundfile` on the same files.
//!
//! Run `cargo bench -p spdl-media --bench files -- FILE...`.

mod timing;

use std::time::Duration;

use spdl_media::{ChannelMix, MediaError, Sound, SoundScratch};
use timing::{cpu_time, millis};

const ROUNDS: u32 = 30;
/// Decodings of a round.
const REPEATS: u32 = 20;
const PART_SECONDS: u64 = 2;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let paths: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    if paths.is_empty() {
        eprintln!("which sound files? `cargo bench -p spdl-media --bench files -- FILE...`");
    }
    for path in paths {
        let file = std::fs::read(&path)?;
        let sound = Sound::open(&file, &mut SoundScratch::default())?;
        let (frames, rate) = (sound.frames(), u64::from(sound.track().rate));
        let part = (PART_SECONDS * rate).min(frames);
        let middle = (frames - part) / 2;
        let [whole, part] = [0..frames, middle..middle + part].map(|range| least(&file, range));
        println!("{path}: whole {:.3} ms, {PART_SECONDS} s of it {:.3} ms", millis(whole?), millis(part?));
    }
    Ok(())
}

/// Returns the least CPU time of opening the file and decoding these frames.
fn least(file: &[u8], frames: std::ops::Range<u64>) -> Result<Duration, MediaError> {
    let (mut scratch, mut samples, mut least) = (SoundScratch::default(), Vec::new(), Duration::MAX);
    for _ in 0..ROUNDS {
        let start = cpu_time();
        for _ in 0..REPEATS {
            samples.clear();
            let sound = Sound::open(file, &mut scratch)?;
            sound
                .decode(frames.clone(), ChannelMix::Keep, &mut scratch, |decoded| samples.extend_from_slice(decoded))?;
        }
        least = least.min((cpu_time() - start) / REPEATS);
        std::hint::black_box(&samples);
    }
    Ok(least)
}
