//! Sound files: heads that come in parts, frames from anywhere, and tables of their packets.

use std::ops::Range;

use spdl_media::{
    ChannelMix, HeadReader, MediaError, Sound, SoundCodec, SoundContainer, SoundScratch, SoundTable, Track,
    encode_sound_excerpt, encode_sound_table,
};

use crate::input::FuzzInput;

/// More frames than the packets that fit into an input need.
const MAX_FRAMES: u64 = 1 << 18;
/// The first bytes of an excerpt of a sound.
const EXCERPT: &[u8] = b"SPDLEXS\n";

/// Checks that a head is the same whether it is in memory or comes in parts, and that any frames are those of the whole.
pub(crate) fn read(data: &[u8]) {
    let mut input = FuzzInput(data);
    let (start, frames) = (u64::from(input.byte()) << 8 | u64::from(input.byte()), u64::from(input.byte()) << 4);
    let mix = [ChannelMix::Mean, ChannelMix::First, ChannelMix::Keep][usize::from(input.byte()) % 3];
    let file = input.0;
    let mut scratch = SoundScratch::default();
    let opened = Sound::open(file, &mut scratch);
    if file.starts_with(EXCERPT) {
        // It promises frames that it need not have.
        if let Ok(sound) = opened {
            let end = sound.frames().min(start + frames);
            _ = sound.decode(start..end, mix, &mut scratch, |_| ());
        }
        return;
    }
    let track = head(file);
    match (&opened, &track) {
        // Of MP3 in MP4, packets tell their channels.
        (Ok(sound), Ok(track)) => {
            let is_other = (track.codec, track.container) == (SoundCodec::Mp3, SoundContainer::Mp4);
            let channels = if is_other { sound.track().channels } else { track.channels };
            assert_eq!(sound.track(), &Track { channels, ..track.clone() });
        }
        // A file whose head leaves its length open may have no packets.
        (Err(_), _) => {}
        (Ok(_), Err(error)) => panic!("its head in parts: {error}"),
    }
    let Ok(sound) = opened else { return };
    let mut decode = |frames: Range<u64>| {
        let mut samples = Vec::new();
        let decoded = sound.decode(frames, mix, &mut scratch, |decoded| {
            samples.extend(decoded.iter().map(|sample| sample.to_bits()));
        });
        (decoded, samples)
    };
    let channels = u64::from(mix.channels(sound.track().channels));
    let all = sound.frames();
    if all * channels > MAX_FRAMES {
        return;
    }
    let (whole, samples) = decode(0..all);
    if whole.is_err() {
        return;
    }
    assert_eq!(samples.len() as u64, all * channels);
    let start = start % (all + 1);
    let end = all.min(start + frames);
    let (part, part_samples) = decode(start..end);
    if cfg!(fuzzing) && matches!(sound.track().codec, SoundCodec::Flac(_)) {
        // Without checksums, any bytes may be taken for the packet that is looked for.
        return;
    }
    if part.is_ok()
        && let Some(samples) = of_excerpt(file, start..end, mix)
    {
        assert!(samples == part_samples, "frames {start}..{end} of the excerpt differ");
    }
    if !matches!(sound.track().codec, SoundCodec::Pcm(_) | SoundCodec::Flac(_)) {
        // A decoder that begins later has not seen what damaged packets have left in it.
        assert!(part.is_err() || part_samples.len() as u64 == (end - start) * channels, "frames {start}..{end}");
        return;
    }
    assert_eq!(part, Ok(()), "frames {start}..{end}");
    let place = |frame: u64| usize::try_from(frame * channels).expect("a small sound");
    assert!(part_samples == samples[place(start)..place(end)], "frames {start}..{end} differ");
}

/// Returns frames of an excerpt with their bytes alone, if the file has a table.
fn of_excerpt(file: &[u8], frames: Range<u64>, mix: ChannelMix) -> Option<Vec<u32>> {
    let excerpt = excerpt(file, frames.clone())?;
    let (mut scratch, mut samples) = (SoundScratch::default(), Vec::new());
    let sound = Sound::open(&excerpt, &mut scratch).expect("an excerpt that was made");
    let decoded = sound.decode(frames, mix, &mut scratch, |decoded| {
        samples.extend(decoded.iter().map(|sample| sample.to_bits()));
    });
    decoded.expect("frames of the excerpt");
    Some(samples)
}

fn excerpt(file: &[u8], frames: Range<u64>) -> Option<Vec<u8>> {
    let table = encode_sound_table(file).ok()??;
    let table = SoundTable::read(&table).expect("a table that was made");
    let segment = table.segment(frames)?;
    let place = |byte: u64| usize::try_from(byte).expect("in memory");
    let parts = segment.ranges.iter().map(|range| &file[place(range.start)..place(range.end)]);
    Some(encode_sound_excerpt(&table, &segment, parts))
}

/// Reads a head from the parts that it asks for.
fn head(file: &[u8]) -> Result<Track, MediaError> {
    let mut reader = HeadReader::new(file.len() as u64);
    loop {
        let wanted = reader.wants();
        let place = |byte: u64| usize::try_from(byte).expect("in memory");
        if let Some(track) = reader.read(&file[place(wanted.start)..place(wanted.end)])? {
            return Ok(track);
        }
        assert_ne!(reader.wants(), wanted, "the same bytes are wanted again");
    }
}

/// Returns small files of all formats, and excerpts of them.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let formats: [fn() -> Vec<Vec<u8>>; 11] = [wav, aiff, au, caf, flac, mp3, vorbis, opus, adts, m4a, matroska];
    let files: Vec<Vec<u8>> = formats.iter().flat_map(|of_format| of_format()).collect();
    // Behind the numbers that choose frames.
    let excerpts = files.iter().filter_map(|file| excerpt(&file[4..], 300..900));
    let excerpts: Vec<_> = excerpts.map(|excerpt| [&[1, 44, 3, 0], &excerpt[..]].concat()).collect();
    files.into_iter().chain(excerpts).collect()
}

/// Returns WAV of all forms, RF64 and Wave64.
pub(crate) fn wav() -> Vec<Vec<u8>> {
    let data: Vec<u8> = (0..u8::MAX).collect();
    let form = |tag: u16, channels: u16, bits: u16| {
        [tag, channels, 8000, 0, 0, 0, channels * bits / 8, bits].map(u16::to_le_bytes).concat()
    };
    let riff = |tag, channels, bits| {
        let head = b"RIFF\0\0\0\0WAVEfmt \x10\0\0\0";
        [&[5, 3, 2, 1], &head[..], &form(tag, channels, bits), b"data\xff\0\0\0", &data].concat()
    };
    let forms = [(1, 8), (1, 16), (1, 24), (1, 32), (3, 32), (3, 64), (6, 8), (7, 8)];
    let mut seeds: Vec<_> =
        forms.into_iter().flat_map(|(tag, bits)| [1, 2].map(|channels| riff(tag, channels, bits))).collect();
    let sizes = [300_u64, 255, 255].map(u64::to_le_bytes).concat();
    let rf64 = [&[5, 3, 2, 1], &b"RF64\xff\xff\xff\xffWAVEds64\x1c\0\0\0"[..], &sizes, &[0; 4], b"fmt \x10\0\0\0"];
    seeds.push([&rf64.concat(), &form(1, 1, 8)[..], b"data\xff\xff\xff\xff", &data].concat());
    let guid = |name: &[u8; 4]| [&name[..], b"\xf3\xac\xd3\x11\x8c\xd1\x00\xc0\x4f\x8e\xdb\x8a"].concat();
    let chunk = |name: &[u8; 4], body: &[u8]| {
        let mut chunk = [&guid(name)[..], &(24 + body.len() as u64).to_le_bytes(), body].concat();
        chunk.resize(chunk.len().next_multiple_of(8), 0);
        chunk
    };
    let riff = b"riff\x2e\x91\xcf\x11\xa5\xd6\x28\xdb\x04\xc1\x00\x00";
    let chunks = [chunk(b"fmt ", &form(1, 2, 16)), chunk(b"data", &data)].concat();
    seeds.push([&[5, 3, 2, 1], &riff[..], &400_u64.to_le_bytes(), &guid(b"wave"), &chunks].concat());
    seeds
}

/// Returns AIFF, and AIFC of some forms.
pub(crate) fn aiff() -> Vec<Vec<u8>> {
    let data: Vec<u8> = (0..u8::MAX).collect();
    let rate = [0x40, 0x0b, 0xfa, 0, 0, 0, 0, 0, 0, 0];
    let file = |form: &[u8], kind: &[u8], bits: u8| {
        let common = [&[0, 2, 0, 0, 0, 30, 0, bits], &rate[..], kind].concat();
        let size = u8::try_from(common.len()).expect("a short chunk");
        let head = [&[5, 3, 2, 1], &b"FORM\0\0\x02\0"[..], form, b"COMM\0\0\0", &[size], &common].concat();
        [&head, &b"SSND\0\0\x01\x07\0\0\0\0\0\0\0\0"[..], &data].concat()
    };
    let mut seeds: Vec<_> = [8, 16, 24, 32].map(|bits| file(b"AIFF", b"", bits)).to_vec();
    let kinds = [(b"sowt", 16), (b"fl32", 32), (b"fl64", 64), (b"ulaw", 16), (b"alaw", 16), (b"raw ", 8)];
    seeds.extend(kinds.map(|(kind, bits)| file(b"AIFC", kind, bits)));
    seeds
}

/// Returns AU of all forms.
pub(crate) fn au() -> Vec<Vec<u8>> {
    let data: Vec<u8> = (0..u8::MAX).collect();
    let numbers = |kind: u32| [24, 255, kind, 8000, 2];
    let big = |kind| [&[5, 3, 2, 1], &b".snd"[..], numbers(kind).map(u32::to_be_bytes).as_flattened(), &data].concat();
    let little = [&[5, 3, 2, 1], &b"dns."[..], numbers(3).map(u32::to_le_bytes).as_flattened(), &data].concat();
    [1, 2, 3, 4, 5, 6, 7, 27].map(big).into_iter().chain([little]).collect()
}

/// Returns CAF of some forms.
pub(crate) fn caf() -> Vec<Vec<u8>> {
    let data: Vec<u8> = (0..u8::MAX).collect();
    let file = |kind: &[u8], flags: u32, bits: u32| {
        let numbers = [flags, bits / 4, 1, 2, bits].map(u32::to_be_bytes);
        let desc = [&8000_f64.to_be_bytes(), kind, numbers.as_flattened()].concat();
        let head = [&[5, 3, 2, 1], &b"caff\0\x01\0\0desc\0\0\0\0\0\0\0\x20"[..], &desc].concat();
        [&head, &b"data\0\0\0\0\0\0\x01\x03\0\0\0\0"[..], &data].concat()
    };
    let kinds =
        [(b"lpcm", 0, 16), (b"lpcm", 2, 24), (b"lpcm", 1, 32), (b"lpcm", 3, 64), (b"ulaw", 0, 8), (b"alaw", 0, 8)];
    kinds.map(|(kind, flags, bits)| file(kind, flags, bits)).to_vec()
}

/// Returns the files behind the numbers that choose frames.
macro_rules! files {
    ($($name:ident: $($file:literal),+;)+) => {$(
        pub(crate) fn $name() -> Vec<Vec<u8>> {
            let files: &[&[u8]] = &[$(include_bytes!(concat!("../../../crates/media/tests/", $file))),+];
            files.iter().map(|file| [&[1, 2, 3, 0], *file].concat()).collect()
        }
    )+};
}

files! {
    flac: "stereo.flac", "containers/flac.oga";
    mp3: "mono.mp3";
    vorbis: "stereo.ogg";
    opus: "mono.opus", "stereo.opus", "modes.opus", "six.opus";
    adts: "mono.aac";
    m4a: "stereo.m4a", "stereo-fragments.m4a", "mono.mp4", "containers/flac.mp4", "containers/mp3.mp4", "containers/pcm.mov";
    matroska: "videos/groups.mkv", "videos/live.mkv", "containers/flac.mka", "containers/mp3.mka", "containers/vorbis.webm",
        "containers/opus.webm", "containers/aac.mka", "containers/pcm.mka";
}
