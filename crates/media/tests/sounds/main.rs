//! Heads and samples of files that are made here, and of a FLAC file that `libsndfile` made. Python's tests compare with
//! `libsndfile` on many more.

mod containers;
mod fragments;
mod opus;
mod packets;
mod plain;
mod tables;

use spdl_media::{ChannelMix, HeadReader, MediaError, PcmSample, Sound, SoundCodec, SoundScratch, Track};

/// 9,000 frames of two channels at 16 kHz, from `soundfile`.
const FLAC: &[u8] = include_bytes!("../stereo.flac");

fn chunk(name: &[u8; 4], body: &[u8]) -> Vec<u8> {
    let size = u32::try_from(body.len()).unwrap().to_le_bytes();
    let mut chunk = [&name[..], &size, body].concat();
    chunk.resize(chunk.len().next_multiple_of(2), 0);
    chunk
}

fn format(tag: u16, channels: u16, rate: u32, bits: u16) -> Vec<u8> {
    let frame_bytes = channels * bits.div_ceil(8);
    let mut body = [tag, channels].map(u16::to_le_bytes).concat();
    body.extend([rate, rate * u32::from(frame_bytes)].map(u32::to_le_bytes).concat());
    body.extend([frame_bytes, bits].map(u16::to_le_bytes).concat());
    chunk(b"fmt ", &body)
}

fn riff(chunks: &[Vec<u8>]) -> Vec<u8> {
    chunk(b"RIFF", &[&b"WAVE"[..], &chunks.concat()].concat())
}

/// Reads a head from requests of at most `most` bytes beyond what is needed, as from a store.
fn head(file: &[u8]) -> Result<(Track, usize), MediaError> {
    let mut reader = HeadReader::new(file.len() as u64);
    for requests in 1..1000 {
        let wanted = reader.wants();
        assert!(wanted.end <= file.len() as u64, "{wanted:?} of {}", file.len());
        let bytes = &file[usize::try_from(wanted.start).unwrap()..usize::try_from(wanted.end).unwrap()];
        if let Some(track) = reader.read(bytes)? {
            return Ok((track, requests));
        }
        assert_ne!(reader.wants(), wanted, "the same bytes are wanted again");
    }
    panic!("1,000 requests");
}

fn samples(file: &[u8], frames: std::ops::Range<u64>, mix: ChannelMix) -> Result<Vec<f32>, MediaError> {
    let mut scratch = SoundScratch::default();
    let sound = Sound::open(file, &mut scratch)?;
    let mut samples = Vec::new();
    sound.decode(frames, mix, &mut scratch, |decoded| samples.extend_from_slice(decoded))?;
    Ok(samples)
}

fn all(file: &[u8]) -> Result<Vec<f32>, MediaError> {
    let frames = Sound::open(file, &mut SoundScratch::default())?.frames();
    samples(file, 0..frames, ChannelMix::Keep)
}

#[test]
fn chunks_before_the_samples_are_passed_and_not_asked_for() {
    let picture = chunk(b"LIST", &vec![7; 100_001]);
    let data = chunk(b"data", &[0, 0x40, 0, 0xc0, 1]);
    let file = riff(&[chunk(b"JUNK", &[1]), picture.clone(), format(1, 1, 8000, 16), picture, data]);
    let (track, requests) = head(&file).unwrap();
    assert_eq!((track.rate, track.channels, track.frames), (8000, 1, Some(2)));
    assert_eq!(track.codec, SoundCodec::Pcm(PcmSample::I16));
    assert_eq!(requests, 3);
    assert_eq!(all(&file).unwrap(), [0.5, -0.5]);
}

#[test]
fn sizes_that_a_recorder_left_open_reach_to_the_end_of_the_file() {
    for (size, of_file) in [(0, 0), (0, 8), (u32::MAX, u32::MAX), (1000, 1036), (1000, 0)] {
        let mut file = riff(&[format(1, 1, 8000, 8), chunk(b"data", &[0, 64, 128, 192])]);
        let at = file.len() - 8;
        file[at..at + 4].copy_from_slice(&size.to_le_bytes());
        file[4..8].copy_from_slice(&of_file.to_le_bytes());
        assert_eq!(all(&file).unwrap(), [-1.0, -0.5, 0.0, 0.5], "{size} in {of_file}");
    }
    // A file that was closed may have no samples, and other chunks behind them.
    let file = riff(&[format(1, 1, 8000, 8), chunk(b"data", &[]), chunk(b"LIST", &[1; 8])]);
    assert_eq!(all(&file).unwrap(), [0.0_f32; 0]);
}

#[test]
fn files_of_more_than_4_gib_have_their_sizes_elsewhere() {
    let data = [0, 0x40, 0, 0x20, 9, 9];
    let sizes = [&0_u64.to_le_bytes()[..], &4_u64.to_le_bytes(), &2_u64.to_le_bytes(), &[0; 4]].concat();
    let mut rf64 = riff(&[chunk(b"ds64", &sizes), format(1, 2, 8000, 16), chunk(b"data", &data)]);
    rf64[..8].copy_from_slice(b"RF64\xff\xff\xff\xff");
    let at = rf64.len() - data.len() - 4;
    rf64[at..at + 4].fill(0xff);
    assert_eq!(all(&rf64).unwrap(), [0.5, 0.25]);

    let guid = |name: &[u8; 4]| [&name[..], b"\xf3\xac\xd3\x11\x8c\xd1\x00\xc0\x4f\x8e\xdb\x8a"].concat();
    let wave64_chunk = |name: &[u8; 4], body: &[u8]| {
        let mut chunk = [&guid(name)[..], &(24 + body.len() as u64).to_le_bytes(), body].concat();
        chunk.resize(chunk.len().next_multiple_of(8), 0);
        chunk
    };
    let riff_guid = b"riff\x2e\x91\xcf\x11\xa5\xd6\x28\xdb\x04\xc1\x00\x00";
    let format = &format(1, 2, 8000, 16)[8..];
    let chunks = [wave64_chunk(b"junk", &[1; 3]), wave64_chunk(b"fmt ", format), wave64_chunk(b"data", &data[..4])];
    let wave64 = [&riff_guid[..], &0_u64.to_le_bytes(), &guid(b"wave"), &chunks.concat()].concat();
    assert_eq!(all(&wave64).unwrap(), [0.5, 0.25]);
}

#[test]
fn channels_are_mixed_left_out_or_kept() {
    let data = [1.0_f32, 0.5, -0.25, 0.25, 0.0, 3.0].map(f32::to_le_bytes).concat();
    let file = riff(&[format(3, 3, 48_000, 32), chunk(b"data", &data)]);
    assert_eq!(samples(&file, 0..2, ChannelMix::Keep).unwrap(), [1.0, 0.5, -0.25, 0.25, 0.0, 3.0]);
    assert_eq!(samples(&file, 0..2, ChannelMix::First).unwrap(), [1.0, 0.25]);
    assert_eq!(samples(&file, 0..2, ChannelMix::Mean).unwrap(), [1.25 / 3.0, 3.25 / 3.0]);
    assert_eq!(samples(&file, 1..2, ChannelMix::First).unwrap(), [0.25]);
}

#[test]
fn what_is_no_sound_that_can_be_decoded_is_named() {
    let data = chunk(b"data", &[0; 8]);
    let nan = [0.0_f32, f32::NAN].map(f32::to_le_bytes).concat();
    for (file, expected) in [
        (
            b"IDs or not".to_vec(),
            "is no WAV, AIFF, AU, CAF, FLAC, MP3, Ogg, AAC, MP4 or Matroska file: it begins with \"IDs or not\"",
        ),
        (riff(&[format(0x11, 1, 8000, 4), data.clone()]), "has samples of 4 bits in the format 0x0011 (IMA ADPCM)"),
        (riff(&[format(1, 0, 8000, 16), data.clone()]), "the sound has no channels"),
        (riff(&[format(1, 1, 0, 16), data.clone()]), "the sample rate is 0 Hz"),
        (
            riff(&[[&format(1, 2, 8000, 16)[..22], &[6], &format(1, 2, 8000, 16)[23..]].concat(), data.clone()]),
            "a frame has another size",
        ),
        (riff(std::slice::from_ref(&data)), "the samples come before the chunk `fmt `"),
        (riff(&[format(1, 1, 8000, 16)]), "ends at byte 36, within its chunks: none has samples"),
        (riff(&[format(3, 1, 8000, 32), chunk(b"data", &nan)]), "not a finite number, in frame 1"),
        (FLAC[..30].to_vec(), "ends at byte 30, within its STREAMINFO"),
    ] {
        let error = all(&file).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    let error = samples(&riff(&[format(1, 1, 8000, 16), data]), 2..5, ChannelMix::Keep).unwrap_err();
    assert_eq!(error.to_string(), "ends at byte 52, within its samples");
}

#[test]
fn flac_has_the_samples_that_libsndfile_reads() {
    let (track, requests) = head(FLAC).unwrap();
    assert_eq!(
        (track.rate, track.channels, track.frames, requests),
        (16_000, 2, Some(9000), 1 + usize::from(track.data.start > 4096))
    );
    let samples = all(FLAC).unwrap();
    assert_eq!(samples.len(), 18_000);
    let hash = samples.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, sample| {
        #[expect(clippy::cast_possible_truncation, reason = "a sample of 16 bits")]
        let bytes = ((sample * 32_768.0) as i16).to_le_bytes();
        bytes.iter().fold(hash, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
    });
    // Computed in Python of what `soundfile` reads.
    assert_eq!(hash, 0xa403_15b0_c7f0_8fd5);
}

#[test]
fn any_frames_of_a_flac_file_are_those_of_the_whole() {
    let whole = all(FLAC).unwrap();
    for start in (0..9000).step_by(97).chain([4095, 4096, 8192, 8999]) {
        for frames in [0, 1, 100, 5000] {
            let end = (start + frames).min(9000);
            let part = samples(FLAC, start as u64..end as u64, ChannelMix::Keep).unwrap();
            assert!(part == whole[start * 2..end * 2], "{start}..{end}");
        }
    }
}

#[test]
fn a_flac_file_from_a_pipe_has_no_length_and_a_tag_may_come_first() {
    let whole = all(FLAC).unwrap();
    let mut piped = FLAC.to_vec();
    // The 36 bits of STREAMINFO with the number of frames.
    piped[21] &= 0xf0;
    piped[22..26].fill(0);
    assert_eq!(head(&piped).unwrap().0.frames, None);
    assert!(all(&piped).unwrap() == whole);
    let tagged = [&b"ID3\x04\x00\x00\x00\x00\x01\x02"[..], &[0xff; 130], FLAC].concat();
    assert!(all(&tagged).unwrap() == whole);
}

#[test]
fn a_damaged_or_cut_file_is_an_error_and_never_other_samples() {
    let whole = all(FLAC).unwrap();
    for bytes in (0..FLAC.len()).step_by(13) {
        assert!(all(&FLAC[..bytes]).is_err(), "{bytes} bytes");
    }
    let packets = usize::try_from(head(FLAC).unwrap().0.data.start).unwrap();
    for byte in (0..FLAC.len()).step_by(3) {
        let mut damaged = FLAC.to_vec();
        damaged[byte] ^= 0x10;
        let read = all(&damaged);
        if byte >= packets {
            assert!(read.is_err(), "byte {byte}");
        } else if let Ok(samples) = read {
            // Rate, MD5 and tags can have any value.
            assert!(samples == whole || samples.len() < whole.len(), "byte {byte}");
        }
    }
}
