//! Segments of sounds from their own bytes, which tables tell, beside the whole sounds.

use std::ops::Range;

use spdl_media::{ChannelMix, MediaError, Sound, SoundScratch, SoundTable, encode_sound_excerpt, encode_sound_table};

use super::{FLAC, all, chunk, containers, format, opus, packets::FILES, plain, riff, samples};

/// Returns the samples of frames from the bytes that a table tells, and the number of these bytes.
fn segment(file: &[u8], table: &[u8], frames: Range<u64>) -> Result<(Vec<f32>, u64), MediaError> {
    let table = SoundTable::read(table).unwrap();
    let segment = table.segment(frames.clone()).expect("the sound has the frames");
    let place = |byte: u64| usize::try_from(byte).unwrap();
    let parts = segment.ranges.iter().map(|range| &file[place(range.start)..place(range.end)]);
    let excerpt = encode_sound_excerpt(&table, &segment, parts);
    Ok((samples(&excerpt, frames, ChannelMix::Keep)?, segment.bytes()))
}

fn table(file: &[u8]) -> Vec<u8> {
    encode_sound_table(file).unwrap().expect("segments of the file can be read")
}

/// Sounds of all formats that have a table, with their channels.
fn sounds() -> Vec<(Vec<u8>, usize)> {
    let pcm = |tag: u16, channels: u16, bits: u16| {
        let data: Vec<u8> = (0..30_000_u32).map(|nth| (nth * nth / 8) as u8 & 0x3f).collect();
        riff(&[
            chunk(b"LIST", &[7; 5000]),
            format(tag, channels, 8000, bits),
            chunk(b"data", &data),
            chunk(b"LIST", &[1; 9]),
        ])
    };
    let forms = [(1, 8), (1, 16), (1, 24), (1, 32), (3, 32), (3, 64), (6, 8), (7, 8)];
    let of_forms =
        forms.into_iter().flat_map(|(tag, bits)| [1, 2, 3].map(|channels| (pcm(tag, channels, bits), channels)));
    let mut sounds: Vec<_> = of_forms.map(|(file, channels)| (file, usize::from(channels))).collect();
    sounds.push((FLAC.to_vec(), 2));
    sounds.extend(FILES.iter().map(|(file, _, _, channels, _)| (file.to_vec(), usize::from(*channels))));
    // Packets in fragments, and a tag before and behind packets of MP3.
    sounds.push((include_bytes!("../stereo-fragments.m4a").to_vec(), 2));
    let mp3 = FILES[0].0;
    sounds.push(([&b"ID3\x03\0\0\0\0\x02\x2c"[..], &[0xff; 300], mp3, b"TAG", &[b'x'; 125]].concat(), 1));
    sounds.extend(containers::FILES.iter().map(|(file, _, _, channels)| (file.to_vec(), usize::from(*channels))));
    sounds.extend(plain::files().into_iter().map(|(file, _)| (file, 2)));
    sounds.extend(opus::long_sounds());
    sounds
}

#[test]
fn any_segment_of_any_format_is_that_of_the_whole_file() {
    for (number, (file, channels)) in sounds().into_iter().enumerate() {
        let (whole, table) = (all(&file).unwrap(), table(&file));
        let frames = whole.len() / channels;
        assert_eq!(SoundTable::read(&table).unwrap().frames(), frames as u64);
        let is_long = frames > 1_000_000;
        let starts = (0..frames).step_by(frames / if is_long { 5 } else { 23 });
        let lengths = if is_long { &[5000][..] } else { &[1, 100, 5000, frames] };
        for start in starts.chain([1, 575, 576, 577, frames / 2, frames - 1]) {
            for length in lengths {
                let end = (start + length).min(frames);
                let range = start as u64..end as u64;
                let (part, bytes) = segment(&file, &table, range.clone()).unwrap();
                let expected = &whole[start * channels..end * channels];
                if is_long {
                    assert!(part == samples(&file, range, ChannelMix::Keep).unwrap(), "sound {number}: {start}..{end}");
                    assert!(opus::difference(&part, expected) < 0.02, "sound {number}: {start}..{end}");
                } else {
                    assert!(part == expected, "sound {number}: {start}..{end}");
                }
                assert!(bytes <= file.len() as u64);
            }
        }
        let (none, bytes) = segment(&file, &table, 7..7).unwrap();
        assert_eq!((none.len(), bytes), (0, 0));
        assert_eq!(SoundTable::read(&table).unwrap().segment(0..frames as u64 + 1), None);
    }
}

#[test]
fn an_excerpt_tells_what_the_whole_file_does_and_has_no_other_frames() {
    for (file, _) in sounds() {
        let (mut scratch, table) = (SoundScratch::default(), table(&file));
        let whole = Sound::open(&file, &mut scratch).unwrap();
        let table = SoundTable::read(&table).unwrap();
        let (frames, middle) = (whole.frames(), whole.frames() / 2);
        let segment = table.segment(middle..middle + 10).unwrap();
        let place = |byte: u64| usize::try_from(byte).unwrap();
        let parts = segment.ranges.iter().map(|range| &file[place(range.start)..place(range.end)]);
        let excerpt = encode_sound_excerpt(&table, &segment, parts);
        let part = Sound::open(&excerpt, &mut scratch).unwrap();
        assert_eq!(
            (part.frames(), part.track().rate, part.track().channels),
            (frames, whole.track().rate, whole.track().channels)
        );
        assert_eq!(part.track().codec, whole.track().codec);
        let counted = part.bytes_of(&(middle..middle + 10));
        assert_eq!(counted, excerpt.len() as u64);
        if segment.bytes() < table.segment(0..frames).unwrap().bytes() {
            let others = samples(&excerpt, 0..frames, ChannelMix::Keep);
            assert!(others.is_err(), "frames that are not in the excerpt");
        }
    }
}

#[test]
fn a_file_of_which_a_part_may_not_be_as_in_the_whole_has_no_table() {
    let mp3 = FILES[0].0;
    let between = [mp3, &[0; 700], mp3].concat();
    assert_eq!(encode_sound_table(&between).unwrap(), None, "other bytes between packets of MP3");
    let mut damaged = FLAC.to_vec();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 0x10;
    assert_eq!(encode_sound_table(&damaged).unwrap(), None, "a packet of FLAC with a wrong checksum");
    assert_eq!(encode_sound_table(&FLAC[..FLAC.len() - 9]).unwrap(), None, "a packet of FLAC that is cut off");
    assert!(encode_sound_table(b"no sound at all, but text").is_err());
}

#[test]
fn damaged_excerpts_and_tables_are_errors() {
    for (number, (file, _)) in sounds().into_iter().enumerate().skip(20) {
        let whole = table(&file);
        let frames = SoundTable::read(&whole).unwrap().frames();
        let range = frames / 3..frames / 3 + frames.min(3000) / 2;
        let mut random = 7_u64 + number as u64;
        let mut draw = |below: usize| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            usize::try_from(random >> 33).unwrap() % below
        };
        for _ in 0..200 {
            let mut table = whole.clone();
            let at = draw(table.len());
            table[at] ^= 1 << draw(8);
            table.truncate(if draw(4) == 0 { draw(table.len()) } else { table.len() });
            let Ok(table) = SoundTable::read(&table) else { continue };
            let Some(segment) = table.segment(range.clone()) else { continue };
            let place = |byte: u64| usize::try_from(byte).unwrap_or(usize::MAX);
            let parts = segment.ranges.iter().filter_map(|range| file.get(place(range.start)..place(range.end)));
            let mut excerpt = encode_sound_excerpt(&table, &segment, parts);
            let at = draw(excerpt.len());
            excerpt[at] ^= 1 << draw(8);
            excerpt.truncate(if draw(4) == 0 { draw(excerpt.len()) } else { excerpt.len() });
            // Whatever it gives, it ends, and says so if it has not what it promises.
            if let Ok(samples) = samples(&excerpt, range.clone(), ChannelMix::First) {
                assert_eq!(samples.len() as u64, range.end - range.start);
            }
        }
    }
}

#[test]
fn a_table_is_short_and_a_segment_is_little_more_than_its_packets() {
    // Frames of a packet, and those before a segment that decoding takes.
    let (file, frames) = adts_hour();
    let hour = (file, frames, 1024, 65 * 1024, 16_000);
    let (opus, frames) = opus::minutes();
    let opus = (opus, frames, 960, 48_000 + 960, 48_000);
    let (matroska, frames) = containers::aac_hour();
    for (file, frames, packet_frames, before, rate) in [hour, opus, (matroska, frames, 1024, 65 * 1024, 16_000)] {
        let (table, packets) = (table(&file), frames / packet_frames);
        let most = if file.starts_with(containers::EBML) { 5 * packets } else { packets };
        assert!((table.len() as u64) < most, "{} bytes for {packets} packets", table.len());
        let table = SoundTable::read(&table).unwrap();
        let (mut read, mut needed) = (0, 0);
        for start in (0..table.frames() - 10 * rate).step_by(usize::try_from(frames / 40).unwrap()) {
            read += table.segment(start..start + 10 * rate).unwrap().bytes();
            needed += (10 * rate + before.min(start)) * file.len() as u64 / frames;
        }
        assert!(read * 10 <= needed * 11, "{read} bytes of {needed}");
    }
}

/// Returns an hour of packets in ADTS, and its frames.
fn adts_hour() -> (Vec<u8>, u64) {
    let file = FILES[7].0;
    let frames = all(file).unwrap().len();
    let times = 3600 * 16_000 / frames;
    (file.repeat(times), (frames * times) as u64)
}
