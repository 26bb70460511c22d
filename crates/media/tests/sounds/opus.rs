//! Opus: what its heads, pages and packets say, and segments of long sounds. Files are put together anew from the packets of small ones.

use spdl_media::{ChannelMix, Sound, SoundScratch};

use super::{all, head, samples};

const MONO: &[u8] = include_bytes!("../mono.opus");
const STEREO: &[u8] = include_bytes!("../stereo.opus");
const MODES: &[u8] = include_bytes!("../modes.opus");
const SIX: &[u8] = include_bytes!("../six.opus");

/// The packets of a file, the first two of which are heads.
fn packets(file: &[u8]) -> Vec<Vec<u8>> {
    let (mut packets, mut packet, mut at) = (Vec::new(), Vec::new(), 0);
    while at < file.len() {
        let lengths = &file[at + 27..at + 27 + usize::from(file[at + 26])];
        at += 27 + lengths.len();
        for length in lengths {
            packet.extend_from_slice(&file[at..at + usize::from(*length)]);
            at += usize::from(*length);
            if *length < 255 {
                packets.push(std::mem::take(&mut packet));
            }
        }
    }
    packets
}

/// A page with one packet.
fn page(packet: &[u8], sequence: usize, flags: u8, granule: u64) -> Vec<u8> {
    let mut page = [&b"OggS\0"[..], &[flags], &granule.to_le_bytes(), &[7, 0, 0, 0]].concat();
    page.extend(u32::try_from(sequence).unwrap().to_le_bytes());
    page.extend([0; 4]);
    page.push(u8::try_from(packet.len() / 255 + 1).unwrap());
    page.extend(std::iter::repeat_n(255, packet.len() / 255));
    page.push(u8::try_from(packet.len() % 255).unwrap());
    page.extend_from_slice(packet);
    let crc = page.iter().fold(0_u32, |crc, byte| {
        (0..8)
            .fold(crc ^ u32::from(*byte) << 24, |crc, _| if crc >> 31 == 0 { crc << 1 } else { crc << 1 ^ 0x04c1_1db7 })
    });
    page[22..26].copy_from_slice(&crc.to_le_bytes());
    page
}

/// A file of packets of `frames` frames each, a page for each; `granule` makes another number of that of a page.
fn file(packets: &[Vec<u8>], frames: u64, granule: impl Fn(u64) -> u64) -> Vec<u8> {
    let last = packets.len() - 1;
    let pages = packets.iter().enumerate().map(|(nth, packet)| {
        let flags = if nth == 0 { 2 } else { 0 } | if nth == last { 4 } else { 0 };
        let counted = if nth < 2 { 0 } else { granule((nth as u64 - 1) * frames) };
        page(packet, nth, flags, counted)
    });
    pages.collect::<Vec<_>>().concat()
}

fn text(file: &[u8]) -> String {
    all(file).map(|samples| samples.len()).unwrap_err().to_string()
}

/// The packets of a file over and over, `seconds` long; without the last one, which may be shorter.
fn long(of: &[u8], frames: u64, seconds: u64) -> Vec<u8> {
    let mut packets = packets(of);
    packets.pop();
    let count = usize::try_from(seconds * 48_000 / frames).unwrap();
    let sound = packets[2..].iter().cycle().take(count).cloned();
    file(&packets[..2].iter().cloned().chain(sound).collect::<Vec<_>>(), frames, |granule| granule)
}

/// Sounds in modes for speech that are longer than what is decoded before a segment, with their channels.
pub(super) fn long_sounds() -> [(Vec<u8>, usize); 2] {
    [(long(MONO, 960, 30), 1), (long(MODES, 2880, 70), 2)]
}

/// Ten minutes of music, and their frames.
pub(super) fn minutes() -> (Vec<u8>, u64) {
    (long(STEREO, 960, 600), 600 * 48_000)
}

#[test]
fn segments_of_long_sounds_are_nearly_those_of_the_whole_and_of_music_exactly() {
    for (of, frames, seconds, channels, most) in
        [(MONO, 960, 30, 1, 0.02), (MODES, 2880, 70, 2, 0.02), (STEREO, 960, 6, 2, 0.0)]
    {
        let file = long(of, frames, seconds);
        let whole = all(&file).unwrap();
        let all = whole.len() as u64 / channels;
        for start in (0..all).step_by(usize::try_from(all / 9).unwrap()) {
            let range = start..(start + 5000).min(all);
            let part = samples(&file, range.clone(), ChannelMix::Keep).unwrap();
            let [from, to] = [range.start, range.end].map(|frame| usize::try_from(frame * channels).unwrap());
            let found = difference(&part, &whole[from..to]);
            // The first second is decoded from the beginning.
            assert!(found <= if start < 48_000 { 0.0 } else { most }, "{seconds} s: {range:?} differs by {found}");
        }
    }
}

/// Returns the largest difference between samples at the same place.
pub(super) fn difference(one: &[f32], other: &[f32]) -> f32 {
    assert_eq!(one.len(), other.len());
    one.iter().zip(other).map(|(one, other)| (one - other).abs()).fold(0.0, f32::max)
}

#[test]
fn a_long_sound_is_what_one_decoder_makes() {
    let (mut packets, file) = (packets(MODES), long(MODES, 2880, 68));
    packets.pop();
    let whole = all(&file).unwrap();
    let (mut decoder, mut decoded) = (opus_pure::OpusDecoder::new(48_000, 2).unwrap(), Vec::new());
    let mut buffer = vec![0.0; 2 * 2880];
    for packet in packets[2..].iter().cycle().take(68 * 48_000 / 2880) {
        assert_eq!(decoder.decode(packet, 2880, &mut buffer).unwrap(), 2880);
        decoded.extend_from_slice(&buffer);
    }
    assert!(whole == decoded[2 * 312..]);
}

#[test]
fn pages_say_where_a_sound_begins_and_ends() {
    let packets = packets(STEREO);
    let frames = (packets.len() as u64 - 2) * 960;
    let whole = all(&file(&packets, 960, |granule| granule)).unwrap();
    assert_eq!(whole.len() as u64, 2 * (frames - 312));
    // A sound that was cut out of another one; one whose end is cut off; one that tells more than there is.
    for (file, expected) in [
        (file(&packets, 960, |granule| granule + 12_345), frames - 312),
        (file(&packets, 960, |granule| granule.min(frames - 500)), frames - 500 - 312),
        (file(&packets, 960, |granule| if granule == frames { granule + 7 } else { granule }), frames - 312),
        (file(&packets[..3], 960, |granule| granule - 200), 760 - 312),
        (file(&packets[..3], 960, |granule| granule - 800), 0),
        (file(&packets[..2], 960, |granule| granule), 0),
    ] {
        let read = all(&file).unwrap();
        assert_eq!(read.len() as u64, 2 * expected);
        assert!(read == whole[..read.len()]);
    }
    let problem = text(&file(&packets, 960, |granule| granule - 10));
    assert!(problem.contains("the first page of sound counts fewer frames than its packets have"), "{problem}");
}

#[test]
fn the_gain_of_a_head_is_applied() {
    let mut packets = packets(MODES);
    let plain = all(&file(&packets, 2880, |granule| granule)).unwrap();
    // In 1/256 dB: twice, and half.
    for (gain, factor) in [(1541_i16, 2.0), (-1541, 0.5)] {
        packets[0][16..18].copy_from_slice(&gain.to_le_bytes());
        let read = all(&file(&packets, 2880, |granule| granule)).unwrap();
        for (sample, of_plain) in read.iter().zip(&plain) {
            assert!((sample - factor * of_plain).abs() < 1e-3, "{sample} {of_plain}");
        }
    }
}

/// The size of a tone in samples.
fn size(samples: impl Iterator<Item = f32>, pitch: f64) -> f64 {
    let parts = samples.enumerate().skip(4800).take(4800).map(|(frame, sample)| {
        let (sin, cos) = (std::f64::consts::TAU * pitch * frame as f64 / 48_000.0).sin_cos();
        (f64::from(sample) * sin, f64::from(sample) * cos)
    });
    let (sin, cos) = parts.fold((0.0, 0.0), |sum, part| (sum.0 + part.0, sum.1 + part.1));
    sin.hypot(cos) / 2400.0
}

#[test]
fn several_channels_have_the_order_of_the_file() {
    let (track, _) = head(SIX).unwrap();
    assert_eq!((track.rate, track.channels), (48_000, 6));
    let check = |samples: &[f32], channels: [Option<u8>; 6]| {
        assert_eq!(samples.len(), 6 * 14_400);
        for (place, channel) in channels.into_iter().enumerate() {
            for tone in 0..6_u8 {
                let found = size(samples.iter().skip(place).step_by(6).copied(), 220.0 + 110.0 * f64::from(tone));
                let expected = if channel == Some(tone) { 0.1 + 0.08 * f64::from(tone) } else { 0.0 };
                assert!((found - expected).abs() < 0.05, "tone {tone} at {place}: {found}");
            }
        }
    };
    // Left, centre, right, those behind, and low frequencies, from which the encoder has taken its tone: WAV has these fourth, and the centre third.
    let mut packets = packets(SIX);
    let order = [Some(0), Some(2), Some(1), Some(4), Some(5), None];
    check(&all(SIX).unwrap(), order);
    // The same with one channel silent, and one twice.
    packets[0][21..27].copy_from_slice(&[0, 255, 1, 2, 3, 4]);
    let frames = (packets.len() as u64 - 2) * 960;
    let end = |granule: u64| if granule == frames { 14_400 + 312 } else { granule };
    check(&all(&file(&packets, 960, end)).unwrap(), [Some(0), None, Some(1), Some(4), Some(5), Some(2)]);
}

#[test]
fn packets_that_are_no_sound_are_passed_and_damaged_ones_named() {
    let mut packets = packets(MODES);
    let whole = all(&file(&packets, 2880, |granule| granule)).unwrap();
    // Without any byte, and with 63 frames.
    for packet in [&[][..], &[0x83, 63]] {
        packets.insert(4, packet.to_vec());
        assert!(all(&file(&packets, 2880, |_| u64::MAX)).unwrap() == whole);
        packets.remove(4);
    }
    // Two frames of one length in three bytes.
    packets[4] = vec![packets[4][0] & !3 | 1, 1, 2, 3];
    assert!(text(&file(&packets, 2880, |_| u64::MAX)).contains("the packet cannot be decoded"));
}

#[test]
fn heads_that_are_not_valid_are_named() {
    let packets = packets(SIX);
    for (place, byte, problem) in [
        (8, 16, "the head of Opus is not valid"),
        (9, 0, "the head of Opus is not valid"),
        (9, 9, "the head of Opus is not valid"),
        (18, 0, "the head of Opus is not valid"),
        (18, 255, "has Opus of channels that are not those of speakers"),
        (19, 0, "the head of Opus is not valid"),
        (19, 7, "has Opus with more streams than channels"),
        (20, 5, "the head of Opus is not valid"),
        (26, 6, "the head of Opus is not valid"),
    ] {
        let mut packets = packets.clone();
        packets[0][place] = byte;
        let found = text(&file(&packets, 960, |granule| granule));
        assert!(found.contains(problem), "{place}: {found}");
    }
    let without_tags = [&packets[..1], &packets[2..]].concat();
    assert!(text(&file(&without_tags, 960, |granule| granule)).contains("the second packet of Opus has no tags"));
}

#[test]
fn damaged_packets_of_opus_are_errors_or_other_samples() {
    for of in [MODES, SIX] {
        let packets = packets(of);
        for nth in 2..packets.len().min(6) {
            for byte in 0..packets[nth].len() {
                let mut damaged = packets.clone();
                damaged[nth][byte] ^= 0xff;
                let file = file(&damaged, 960, |_| u64::MAX);
                let mut scratch = SoundScratch::default();
                let sound = Sound::open(&file, &mut scratch).unwrap();
                let mut read = 0;
                let end =
                    sound.decode(0..sound.frames(), ChannelMix::First, &mut scratch, |samples| read += samples.len());
                assert_eq!(end.is_ok(), read as u64 == sound.frames(), "byte {byte} of packet {nth}");
            }
        }
    }
}
