//! Sounds in Ogg, MP4 and Matroska, beside the same packets in files of their own.

use spdl_media::{MediaError, Sound, SoundCodec, SoundContainer, SoundScratch};

use super::{
    FLAC, all, head,
    packets::{M4A, MP3, OPUS, VORBIS},
};

pub(super) const EBML: &[u8] = b"\x1a\x45\xdf\xa3";
const FLAC_OGG: &[u8] = include_bytes!("../containers/flac.oga");
const FLAC_MP4: &[u8] = include_bytes!("../containers/flac.mp4");
const FLAC_MKA: &[u8] = include_bytes!("../containers/flac.mka");
const MP3_MKA: &[u8] = include_bytes!("../containers/mp3.mka");
const MP3_MP4: &[u8] = include_bytes!("../containers/mp3.mp4");
const VORBIS_WEBM: &[u8] = include_bytes!("../containers/vorbis.webm");
const OPUS_WEBM: &[u8] = include_bytes!("../containers/opus.webm");
const AAC_MKA: &[u8] = include_bytes!("../containers/aac.mka");
const PCM_MOV: &[u8] = include_bytes!("../containers/pcm.mov");
const PCM_MKA: &[u8] = include_bytes!("../containers/pcm.mka");

/// Each file with its container, sample rate and channels.
pub(super) const FILES: [(&[u8], SoundContainer, u32, u16); 10] = [
    (FLAC_OGG, SoundContainer::Ogg, 16_000, 2),
    (FLAC_MP4, SoundContainer::Mp4, 16_000, 2),
    (FLAC_MKA, SoundContainer::Matroska, 16_000, 2),
    (MP3_MKA, SoundContainer::Matroska, 16_000, 1),
    (MP3_MP4, SoundContainer::Mp4, 16_000, 1),
    (VORBIS_WEBM, SoundContainer::Matroska, 16_000, 2),
    (OPUS_WEBM, SoundContainer::Matroska, 48_000, 2),
    (AAC_MKA, SoundContainer::Matroska, 16_000, 2),
    (PCM_MOV, SoundContainer::Mp4, 16_000, 1),
    (PCM_MKA, SoundContainer::Matroska, 16_000, 1),
];

#[test]
fn packets_in_a_container_have_the_samples_that_they_have_in_a_file_of_their_own() {
    let flac = all(FLAC).unwrap();
    for file in [FLAC_OGG, FLAC_MP4, FLAC_MKA] {
        assert!(all(file).unwrap() == flac);
    }
    // Without the packet that tells what the encoder has added, all is there: FFmpeg has written what is behind the sound into Matroska, and an
    // edit that begins with the sound into MP4.
    let mp3 = all(&MP3[288..]).unwrap();
    assert_eq!(mp3.len(), 18 * 576);
    assert!(all(MP3_MKA).unwrap() == mp3[..1105 + 9000]);
    assert!(all(MP3_MP4).unwrap() == mp3[1105..18 * 576]);
    let vorbis = all(VORBIS_WEBM).unwrap();
    assert_eq!(vorbis.len(), 2 * 9344);
    assert!(vorbis.starts_with(&all(VORBIS).unwrap()));
    assert!(all(OPUS_WEBM).unwrap() == all(OPUS).unwrap());
    let aac = all(AAC_MKA).unwrap();
    assert_eq!(aac.len(), 2 * 10 * 1024);
    assert!(aac.ends_with(&all(M4A).unwrap()));
    let (of_24_bits, of_16_bits) = (all(PCM_MOV).unwrap(), all(PCM_MKA).unwrap());
    assert_eq!((of_24_bits.len(), of_16_bits.len()), (1600, 1600));
    assert!(of_24_bits.iter().zip(&of_16_bits).all(|(one, other)| (one - other).abs() < 1e-4));
    assert!(of_24_bits.iter().any(|sample| sample.abs() > 0.3));
}

#[test]
fn heads_tell_the_container_in_few_requests() {
    for (number, (file, container, rate, channels)) in FILES.into_iter().enumerate() {
        let (track, requests) = head(file).unwrap();
        // FFmpeg writes two channels into MP4, whatever packets have.
        let channels = if file == MP3_MP4 { 2 } else { channels };
        assert_eq!((track.container, track.rate, track.channels), (container, rate, channels), "file {number}");
        assert!(requests <= 2, "file {number}: {requests} requests");
    }
    let flac = head(FLAC_OGG).unwrap().0;
    assert!(matches!(flac.codec, SoundCodec::Flac(stream) if stream.bits == 16));
}

#[test]
fn files_that_are_cut_or_damaged_are_errors_or_other_sounds_and_never_more_of_them() {
    for (number, (file, ..)) in FILES.into_iter().enumerate() {
        let whole = all(file).unwrap();
        for end in (0..file.len()).step_by(61) {
            let cut = all(&file[..end]);
            assert!(cut.is_err() || cut.is_ok_and(|cut| cut.len() <= whole.len()), "file {number} to byte {end}");
        }
        let mut damaged = file.to_vec();
        for at in (0..file.len()).step_by(37) {
            damaged[at] ^= 0x41;
            if let Ok(samples) = all(&damaged) {
                assert!(samples.len() <= 3 * whole.len() + (1 << 16), "file {number}, byte {at}");
            }
            damaged[at] = file[at];
        }
    }
}

#[test]
fn flac_that_is_damaged_is_told_by_its_place_in_the_file() {
    for file in [FLAC_OGG, FLAC_MP4, FLAC_MKA] {
        // Within the last packet of three. In Ogg the checksum of the page tells first.
        let at = file.windows(2).rposition(|bytes| bytes == [0xff, 0xf8]).unwrap() + 100;
        let mut damaged = file.to_vec();
        damaged[at] ^= 1;
        let Err(MediaError::Malformed { byte, problem }) = all(&damaged) else { panic!("a damaged packet") };
        assert!(problem.contains("wrong checksum"), "{problem}");
        let is_page = file.starts_with(b"OggS");
        assert!(byte == at as u64 - 100 || (is_page && byte > 0 && byte < at as u64), "{byte} of {at}");
    }
}

#[test]
fn what_is_not_decoded_in_a_container_is_named() {
    let changed = |file: &[u8], from: &[u8], to: &[u8]| {
        let at = file.windows(from.len()).position(|bytes| bytes == from).unwrap();
        [&file[..at], to, &file[at + from.len()..]].concat()
    };
    for (file, what) in [
        (changed(AAC_MKA, b"A_AAC", b"A_AC3"), "has sound of the codec A_AC3 in Matroska, which is not supported"),
        (changed(FLAC_MP4, b"fLaC", b"alac"), "has ALAC in MP4, which is not supported"),
        (changed(PCM_MOV, b"in24", b"wxyz"), "has a codec other than AAC, Opus, FLAC, MP3 and samples"),
        (changed(FLAC_MP4, b"soun", b"vide"), "has no track of sound"),
    ] {
        let error = Sound::open(&file, &mut SoundScratch::default()).unwrap_err().to_string();
        assert!(error.contains(what), "{error}");
    }
}

/// Returns an hour of packets of AAC in Matroska, and its frames.
pub(super) fn aac_hour() -> (Vec<u8>, u64) {
    let place = |id: &[u8]| AAC_MKA.windows(id.len()).position(|bytes| bytes == id).unwrap();
    let (segment, cluster) = (place(b"\x18\x53\x80\x67"), place(b"\x1f\x43\xb6\x75"));
    let mut file = AAC_MKA[..cluster].to_vec();
    // The segment reaches to the end of the file.
    assert_eq!(file[segment + 4], 1);
    file[segment + 5..segment + 12].fill(0xff);
    let end = AAC_MKA.windows(4).rposition(|bytes| bytes == b"\x1c\x53\xbb\x6b").unwrap();
    let times = 3600 * 16_000 / (10 * 1024);
    file.extend(AAC_MKA[cluster..end].repeat(times));
    (file, times as u64 * 10 * 1024)
}
