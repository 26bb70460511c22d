//! The sound of videos: that of small files, and of files that are cut or damaged. Tests of the Python package compare more codecs with what
//! `ffmpeg` was given.

use spdl_media::{ChannelMix, MediaError, Sound, SoundScratch, sound_begin_nanos};

use super::read;

const TABLES: &[u8] = include_bytes!("tables.mp4");
const LIVE: &[u8] = include_bytes!("live.mkv");
/// A second of a tone of 440 Hz at 16 kHz: MP3 in blocks of several packets, and AAC in fragments.
const GROUPS: &[u8] = include_bytes!("groups.mkv");
const FRAGMENTS: &[u8] = include_bytes!("fragments.mp4");
const RATE: u32 = 16_000;

/// Returns the samples from the beginning of the video on.
fn samples(file: &[u8]) -> Result<Vec<f32>, MediaError> {
    let begin_nanos = sound_begin_nanos(file)?;
    let mut scratch = SoundScratch::default();
    let sound = Sound::open(file, &mut scratch)?;
    let mut samples = Vec::new();
    sound.decode(0..sound.frames(), ChannelMix::Keep, &mut scratch, |decoded| samples.extend_from_slice(decoded))?;
    let late = i128::from(begin_nanos) * i128::from(RATE) / 1_000_000_000;
    match usize::try_from(late.unsigned_abs()).unwrap().min(1 << 20) {
        frames if late < 0 => drop(samples.drain(..frames.min(samples.len()))),
        frames => drop(samples.splice(..0, vec![0.0; frames])),
    }
    Ok(samples)
}

#[test]
fn the_sound_of_a_video_is_heard_from_its_beginning_on() {
    for (name, file) in [("groups.mkv", GROUPS), ("fragments.mp4", FRAGMENTS)] {
        let samples = samples(file).unwrap();
        assert!((15_500..18_000).contains(&samples.len()), "{name}: {} samples", samples.len());
        // Where the sound was put behind what the coder has before it, so were the pictures.
        let (video, ..) = read(file).unwrap();
        let [numerator, denominator] = video.track.time_base.map(f64::from);
        let first = video.packets.iter().map(|packet| packet.pts).min().unwrap() as f64 * numerator / denominator;
        let phase = |nth: usize| std::f64::consts::TAU * 440.0 * (nth as f64 / f64::from(RATE) - first);
        let like = |wave: fn(f64) -> f64| {
            (2000..14_000).map(|nth| wave(phase(nth)) * f64::from(samples[nth])).sum::<f64>() / 6000.0
        };
        let (tone, late) = (like(f64::sin), like(f64::cos));
        assert!((0.1..0.15).contains(&tone) && late.abs() < 0.05, "{name}: {tone}, {late}");
    }
}

#[test]
fn a_video_without_sound_says_so() {
    for file in [TABLES, LIVE] {
        assert_eq!(sound_begin_nanos(file), Err(MediaError::NoSound));
    }
    let error = sound_begin_nanos(b"no video at all").unwrap_err().to_string();
    assert!(error.starts_with("is no MP4, MOV, Matroska or WebM file: it begins with \"no video"), "{error}");
    assert!(sound_begin_nanos(b"").is_err());
}

#[test]
fn files_that_are_cut_or_damaged_are_errors_or_other_sounds() {
    for file in [GROUPS, FRAGMENTS] {
        let whole = samples(file).unwrap();
        for end in (0..file.len()).step_by(31) {
            assert!(
                samples(&file[..end]).is_ok_and(|samples| samples.len() <= whole.len())
                    || samples(&file[..end]).is_err()
            );
        }
        let mut damaged = file.to_vec();
        for at in (0..file.len()).step_by(47) {
            damaged[at] ^= 0x55;
            drop(samples(&damaged));
            damaged[at] = file[at];
        }
    }
}
