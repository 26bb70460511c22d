//! Files whose packets other projects' code decodes: their lengths, any part of them, and files that are cut or damaged.

use spdl_media::{ChannelMix, MediaError, Sound, SoundCodec, SoundScratch};

use super::{all, head, samples};

pub(super) const MP3: &[u8] = include_bytes!("../mono.mp3");
pub(super) const VORBIS: &[u8] = include_bytes!("../stereo.ogg");
pub(super) const M4A: &[u8] = include_bytes!("../stereo.m4a");
pub(super) const OPUS: &[u8] = include_bytes!("../stereo.opus");
const OPUS_MP4: &[u8] = include_bytes!("../mono.mp4");
const SPEECH: &[u8] = include_bytes!("../mono.opus");
const MODES: &[u8] = include_bytes!("../modes.opus");
const ADTS: &[u8] = include_bytes!("../mono.aac");

pub(super) type Expected = (&'static [u8], SoundCodec, u32, u16, [usize; 2]);

/// Each file with its codec, sample rate and channels, and the frames that it has before the sound and behind it: an edit of M4A
/// does not end within a packet, and ADTS tells nothing of either.
pub(super) const FILES: [Expected; 8] = [
    (MP3, SoundCodec::Mp3, 16_000, 1, [0, 0]),
    (VORBIS, SoundCodec::Vorbis, 16_000, 2, [0, 0]),
    (OPUS, SoundCodec::Opus, 48_000, 2, [0, 0]),
    (SPEECH, SoundCodec::Opus, 48_000, 1, [0, 0]),
    (MODES, SoundCodec::Opus, 48_000, 2, [0, 0]),
    (OPUS_MP4, SoundCodec::Opus, 48_000, 1, [0, 0]),
    (M4A, SoundCodec::Aac, 16_000, 2, [0, 216]),
    (ADTS, SoundCodec::Aac, 16_000, 1, [1024, 216]),
];

fn frames(file: &[u8]) -> Result<u64, MediaError> {
    Ok(Sound::open(file, &mut SoundScratch::default())?.frames())
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

#[test]
fn what_an_encoder_adds_is_left_out_so_that_samples_are_in_their_places() {
    for (file, codec, rate, channels, [before, behind]) in FILES {
        let (track, _) = head(file).unwrap();
        assert_eq!((track.codec, track.rate, track.channels), (codec, rate, channels));
        let samples = all(file).unwrap();
        let frames = before + 9000 * (rate / 16_000) as usize + behind;
        assert_eq!(samples.len(), frames * usize::from(channels), "{codec:?}");
        for (channel, (size, pitch)) in [(0.5, 440.0), (0.25, 660.0)][..channels.into()].iter().enumerate() {
            let decoded = samples.iter().skip(channel).step_by(channels.into()).skip(before);
            let errors = decoded.enumerate().map(|(frame, sample)| {
                let time = frame as f64 / f64::from(rate);
                (f64::from(*sample) - size * (std::f64::consts::TAU * pitch * time).sin()).powi(2)
            });
            // Without the first and last tenth of a second, where the tones begin and end at once.
            let part = errors.skip(rate as usize / 10).take(rate as usize / 3).collect::<Vec<_>>();
            let error = (part.iter().sum::<f64>() / part.len() as f64).sqrt();
            // Modes for speech, of few bits, change tones more.
            let near = if codec == SoundCodec::Opus { 0.3 } else { 0.1 };
            assert!(error < near * size, "{codec:?}: {error} on channel {channel}");
        }
    }
}

#[test]
fn any_frames_are_those_of_the_whole() {
    for (file, codec, _, channels, _) in FILES {
        let whole = all(file).unwrap();
        let frames = whole.len() / usize::from(channels);
        for start in (0..frames).step_by(frames / 37).chain([1, 575, 576, 577, frames - 1]) {
            for length in [1, 100, 5000] {
                let end = (start + length).min(frames);
                let part = samples(file, start as u64..end as u64, ChannelMix::Keep).unwrap();
                let expected = &whole[start * usize::from(channels)..end * usize::from(channels)];
                assert!(part == expected, "{codec:?}: {start}..{end}");
            }
        }
    }
}

#[test]
fn tags_and_other_bytes_around_mp3_are_passed() {
    let whole = all(MP3).unwrap();
    let id3 = [&b"ID3\x03\x00\x00\x00\x00\x01\x02"[..], &[0xff; 130]].concat();
    let id3v1 = [&b"TAG"[..], &[b'x'; 125]].concat();
    let ape = [&b"APETAGEX\xd0\x07\0\0\x20\0\0\0\0\0\0\0\0\0\0\x80"[..], &[0; 8]].concat();
    for (before, behind) in
        [(&id3[..], &[][..]), (&[], &id3v1), (&[], &ape), (&[0; 333], &[0; 999]), (&[0xff; 9], b"\xff\xfb\x90")]
    {
        assert!(all(&[before, MP3, behind].concat()).unwrap() == whole, "{before:?} {behind:?}");
    }
    // What follows the counted packets of the first of files that were joined is left out.
    assert!(all(&[MP3, MP3].concat()).unwrap() == whole);
    // Without its first packet, of 288 bytes, which says what was added, all of each packet is the sound.
    assert_eq!(frames(&MP3[288..]).unwrap() % 576, 0);
}

#[test]
fn mp3_with_another_number_of_packets_than_its_head_counts_ends_as_libsndfile_has_it() {
    let whole = all(MP3).unwrap();
    let head = MP3.windows(4).position(|bytes| bytes == b"Xing").unwrap();
    let name = MP3.windows(4).position(|bytes| bytes == b"LAME").unwrap();
    let counting = |packets: u32, has_name: bool| {
        let mut file = MP3.to_vec();
        file[head + 8..head + 12].copy_from_slice(&packets.to_be_bytes());
        if !has_name {
            file[name..name + 9].fill(0);
        }
        all(&file).unwrap()
    };
    // It has 18 packets of 576 frames, 576 frames of delay, and 529 of decoding. These lengths are what libsndfile 1.2 reads.
    for (packets, has_name, frames) in [
        (15, true, 7272),
        (18, true, 9000),
        (19, true, 9263),
        (20, true, 9263),
        (100_000, true, 9263),
        (17, false, 9263),
        (18, false, 9839),
        (100, false, 9839),
    ] {
        let read = counting(packets, has_name);
        assert_eq!(read.len(), frames, "{packets}, {has_name}");
        let from = if has_name { 0 } else { 576 };
        let shared = whole.len().min(frames - from);
        assert!(read[from..][..shared] == whole[..shared], "{packets}, {has_name}");
    }
    for (cut, frames) in [(100, 8111), (500, 6383), (882, 47)] {
        let read = all(&MP3[..MP3.len() - cut]).unwrap();
        assert_eq!(read.len(), frames, "{cut}");
        assert!(read == whole[..frames], "{cut}");
    }
}

#[test]
fn a_file_that_is_cut_off_is_named() {
    for (file, what) in [
        (&MP3[..50], "within its first packets"),
        (&VORBIS[..VORBIS.len() - 3], "the file ends within this page"),
        (&VORBIS[..300], "the file ends within this page"),
        (&VORBIS[..30], "within a page of Ogg"),
        (&M4A[..M4A.len() - 1], "within the packets of its tables"),
        (&M4A[..100], "within its boxes: none is `moov`"),
        (&ADTS[..ADTS.len() - 1], "the file ends within this packet"),
        (&[ADTS, &[0; 9]].concat(), "no packet of AAC begins here"),
        (b"ID3\x04\0\0\0\0\0\x01x and no packet of any codec", "no packet of MP3 follows the tag"),
        (
            b"\xff\xfd\x80\x04 is of layer II",
            "has MPEG audio of layer I or II, or of a free bit rate, which is not supported",
        ),
    ] {
        let error = text(frames(file).unwrap_err());
        assert!(error.contains(what), "{error}");
    }
}

#[test]
fn a_damaged_page_of_ogg_is_an_error() {
    for file in [VORBIS, OPUS] {
        for byte in (0..file.len()).step_by(5) {
            let mut damaged = file.to_vec();
            damaged[byte] ^= 0x10;
            assert!(all(&damaged).is_err(), "byte {byte}");
        }
        let pages =
            file.windows(4).enumerate().filter(|(_, bytes)| bytes == b"OggS").map(|(at, _)| at).collect::<Vec<_>>();
        let missing = [&file[..pages[1]], &file[pages[2]..]].concat();
        assert!(text(all(&missing).unwrap_err()).contains("the page is not the next one"));
        let chained = text(all(&[file, file].concat()).unwrap_err());
        assert!(chained.contains("several sounds one after the other, which makes it a chained Ogg file"), "{chained}");
    }
}

#[test]
fn damaged_packets_are_errors_or_other_samples_and_never_more_of_them() {
    let most = all(MP3).unwrap().len();
    for byte in 0..MP3.len() {
        let mut damaged = MP3.to_vec();
        damaged[byte] ^= 0xff;
        if let Ok(samples) = all(&damaged) {
            assert!(samples.len() <= most + 2 * 1152, "byte {byte}");
        }
    }
}

#[test]
fn kinds_of_aac_that_are_not_decoded_are_named() {
    let changed = |at: usize, byte: u8| {
        let mut file = ADTS.to_vec();
        file[at] = byte;
        file
    };
    let alac = M4A.windows(4).position(|bytes| bytes == b"mp4a").unwrap();
    // The kind is in the upper bits of the third byte, and channels are in the lowest one and the upper ones of the fourth.
    for (file, what) in [
        (changed(2, ADTS[2] & 0x3f), "AAC of another kind than AAC-LC"),
        (changed(3, ADTS[3] | 0xc0), "AAC of other channels than mono and stereo"),
        (with_spectral_replication(), "HE-AAC"),
        ([&M4A[..alac], b"alac", &M4A[alac + 4..]].concat(), "ALAC in MP4"),
    ] {
        let error = text(frames(&file).unwrap_err());
        assert!(error.contains(&format!("has {what}, which is not supported")), "{error}");
    }
}

/// Returns the file with what HE-AAC has: before the end of each packet an element of four bytes for the upper half of the sound.
fn with_spectral_replication() -> Vec<u8> {
    let (mut file, mut at) = (Vec::new(), 0);
    while at < ADTS.len() {
        let head = &ADTS[at..at + 7];
        let length = usize::from(head[3] & 3) << 11 | usize::from(head[4]) << 3 | usize::from(head[5] >> 5);
        let bytes = ADTS[at + 7..at + length].iter();
        let mut packet = bytes.flat_map(|byte| (0..8).map(move |bit| byte >> (7 - bit) & 1)).collect::<Vec<u8>>();
        // The end is three ones, and zeros up to a whole byte.
        packet.truncate(packet.iter().rposition(|bit| *bit == 1).unwrap() - 2);
        packet.extend([1, 1, 0, 0, 1, 0, 0, 1, 1, 0, 1]);
        packet.extend([0; 28]);
        packet.extend([1, 1, 1]);
        packet.resize(packet.len().next_multiple_of(8), 0);
        let packet: Vec<u8> = packet.chunks(8).map(|bits| bits.iter().fold(0, |byte, bit| byte << 1 | bit)).collect();
        let bytes = u16::try_from(packet.len() + 7).unwrap();
        let low = |number: u16| number.to_be_bytes()[1];
        file.extend(&head[..3]);
        file.extend([head[3] & 0xfc | low(bytes >> 11), low(bytes >> 3), low(bytes << 5) | head[5] & 0x1f, head[6]]);
        file.extend(packet);
        at += length;
    }
    file
}
