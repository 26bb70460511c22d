//! MP4 (M4A, MOV) as ISO/IEC 14496-12 has it: the first track of sound, if it is AAC or Opus.

use std::ops::Range;

use super::{
    CodedPacket,
    aac::{AacForm, AacProblem, PACKET_FRAMES},
    opus::{OpusForm, OpusPackets, OpusProblem, RATE},
};
use crate::{MediaError, SoundCodec, Track, input::Input};

/// The most bytes of a box `moov`: tables of hundreds of hours.
const MAX_MOOV_BYTES: u64 = 1 << 26;
/// More boxes at the top than files have.
const MAX_BOXES: u32 = 1 << 16;

/// Finds the box `moov`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Mp4Head {
    boxes: u32,
}

/// What a track says of its packets.
#[derive(Clone, Debug)]
pub(crate) struct Mp4Sound<'b> {
    pub(crate) codec: Mp4Codec,
    /// The first frame of the sound, and the frame up to which an edit takes packets.
    start: u64,
    end: Option<u64>,
    packets: Mp4Packets<'b>,
}

/// What the samples of a track are.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Mp4Codec {
    Aac(AacForm),
    Opus(OpusForm),
}

/// The packets of a track.
#[derive(Clone, Debug)]
pub(crate) struct Mp4Packets<'b> {
    file: &'b [u8],
    /// Lengths of packets: of all, or a table of 4 bytes for each.
    length: u32,
    lengths: &'b [[u8; 4]],
    count: u32,
    next: u32,
    /// Places of chunks, each of 4 or 8 bytes.
    chunks: &'b [u8],
    chunk_bytes: usize,
    next_chunk: u32,
    /// From which chunk on there are so many packets in a chunk.
    runs: &'b [[u8; 12]],
    left: u32,
    at: u64,
    /// The bytes of all packets so far.
    passed: u64,
    /// What is known of packets of Opus.
    pub(crate) opus: Option<OpusPackets>,
}

impl Mp4Head {
    /// Returns whether a file with these first bytes is one of MP4.
    pub(crate) fn recognise(begins: &[u8]) -> bool {
        matches!(begins.get(4..8), Some(b"ftyp" | b"moov" | b"wide"))
    }

    /// Reads what is there; returns the track when the box `moov` has been found.
    pub(crate) fn read(&mut self, input: &mut Input<'_, '_>) -> Result<Option<Track>, MediaError> {
        loop {
            let Some(header) = input.peek(8, MOOV)? else { return Ok(None) };
            let (mut size, kind) = (u64::from(number(header, 0).unwrap_or_default()), &header[4..8]);
            let mut header_bytes = 8;
            if size == 1 {
                header_bytes = 16;
                let Some(header) = input.peek(16, MOOV)? else { return Ok(None) };
                size = u64::from_be_bytes(*header[8..].first_chunk().expect("16 bytes"));
            } else if size == 0 {
                size = input.file_bytes() - input.at();
            }
            if size < header_bytes {
                return Err(input.malformed("a box is shorter than its head"));
            }
            if kind == b"moov" {
                if size > MAX_MOOV_BYTES {
                    return Err(input.malformed("the box `moov` has more than 64 MiB"));
                }
                let Some(moov) = input.peek(size, MOOV)? else { return Ok(None) };
                let start = input.at() + header_bytes;
                let body = &moov[usize::try_from(header_bytes).expect("8 or 16")..];
                let (codec, rate, channels) = match Mp4Sound::read(body, &[], start)?.codec {
                    Mp4Codec::Aac(AacForm { rate, channels }) => (SoundCodec::AacInMp4, rate, channels),
                    Mp4Codec::Opus(form) => (SoundCodec::OpusInMp4, RATE, form.channels.into()),
                };
                let data = start..input.at() + size;
                return Ok(Some(Track { codec, rate, channels, frames: None, data }));
            }
            self.boxes += 1;
            if self.boxes > MAX_BOXES {
                return Err(input.malformed("more than 65,536 boxes come before the box `moov`"));
            }
            input.skip(size);
        }
    }
}

/// What the file ends within.
const MOOV: &str = "its boxes: none is `moov`";

/// Returns the boxes in another one, each by its name and its content.
fn boxes(mut bytes: &[u8]) -> impl Iterator<Item = ([u8; 4], &[u8])> {
    std::iter::from_fn(move || {
        let size = usize::try_from(number(bytes, 0)?).ok()?;
        let kind = *bytes.get(4..)?.first_chunk()?;
        let size = if size == 0 { bytes.len() } else { size };
        let content = bytes.get(8..size)?;
        bytes = &bytes[size..];
        Some((kind, content))
    })
}

/// Returns the first box of a name, in boxes in one another.
fn find<'b>(bytes: &'b [u8], path: &[&[u8; 4]]) -> Option<&'b [u8]> {
    path.iter().try_fold(bytes, |bytes, name| boxes(bytes).find(|(kind, _)| kind == *name).map(|(_, content)| content))
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Returns the table behind a box's version, flags and number of entries.
fn table<const N: usize>(content: &[u8]) -> Option<&[[u8; N]]> {
    let count = usize::try_from(number(content, 4)?).ok()?;
    content.get(8..)?.as_chunks().0.get(..count)
}

impl<'b> Mp4Sound<'b> {
    /// Reads the content of the box `moov`, which begins at `byte` of the file.
    pub(crate) fn read(moov: &'b [u8], file: &'b [u8], byte: u64) -> Result<Self, MediaError> {
        let damaged = |problem| MediaError::Malformed { byte, problem };
        let unsupported = |what: &str| MediaError::Unsupported { what: what.to_owned() };
        let mut tracks = boxes(moov).filter(|(kind, _)| kind == b"trak").map(|(_, track)| track);
        let handler = |track: &[u8]| find(track, &[b"mdia", b"hdlr"])?.get(8..12).map(|kind| kind == b"soun");
        let track = tracks.find(|track| handler(track) == Some(true));
        let track = track.ok_or_else(|| unsupported("no track of sound"))?;
        if find(moov, &[b"mvex"]).is_some() {
            return Err(unsupported("a sound in fragments"));
        }
        let stbl = find(track, &[b"mdia", b"minf", b"stbl"]).ok_or_else(|| damaged("a track has no tables"))?;
        let codec = match codec(stbl) {
            Ok(codec) => codec,
            Err(AacProblem::Invalid) => return Err(damaged("the head of the sound is not valid")),
            Err(AacProblem::Unsupported(what)) => return Err(unsupported(what)),
        };
        let mut packets =
            Mp4Packets::read(stbl, file).ok_or_else(|| damaged("the tables of the sound are not valid"))?;
        let (start, end) = match codec {
            Mp4Codec::Aac(form) => {
                let (start, end) = edit(moov, track, form.rate).unwrap_or_else(|| (gapless(moov).unwrap_or(0), None));
                (start, end.map(|end| end.next_multiple_of(PACKET_FRAMES.into())))
            }
            Mp4Codec::Opus(form) => {
                packets.opus = Some(OpusPackets::default());
                let (start, end) = edit(moov, track, RATE).unwrap_or_else(|| (form.pre_skip.into(), None));
                // An edit is as long as that to a thousandth of a second, mostly; how much of the last packet is sound is in the durations.
                let end = end.map(|end| end + u64::from(RATE / 1000));
                (start, end.into_iter().chain(duration(track, stbl)).min())
            }
        };
        Ok(Self { codec, start, end, packets })
    }

    pub(crate) fn packets(&self) -> Mp4Packets<'b> {
        self.packets.clone()
    }

    /// Returns the frames that are the sound, of all `frames` that are decoded: of AAC as FFmpeg, which leaves packets whole that an edit ends in.
    pub(crate) fn part(&self, frames: u64) -> Range<u64> {
        let end = self.end.map_or(frames, |end| end.min(frames));
        self.start.min(end)..end
    }
}

/// Reads what the samples of the track are.
fn codec(stbl: &[u8]) -> Result<Mp4Codec, AacProblem> {
    let entries = find(stbl, &[b"stsd"]).and_then(|content| content.get(8..)).ok_or(AacProblem::Invalid)?;
    let (kind, entry) = boxes(entries).next().ok_or(AacProblem::Invalid)?;
    match &kind {
        b"mp4a" | b"Opus" => {}
        b"alac" => return Err(AacProblem::Unsupported("ALAC in MP4")),
        b"fLaC" => return Err(AacProblem::Unsupported("FLAC in MP4")),
        b"ac-3" | b"ec-3" => return Err(AacProblem::Unsupported("Dolby's AC-3")),
        b"enca" => return Err(AacProblem::Unsupported("encrypted sound")),
        _ => return Err(AacProblem::Unsupported("a codec other than AAC and Opus in MP4")),
    }
    // QuickTime's descriptions of version 1 and 2 have more fields, and the box in another one.
    let fields = match entry.get(8..10) {
        Some([0, 1]) => 28 + 16,
        Some([0, 2]) => 28 + 36,
        _ => 28,
    };
    let inner = entry.get(fields..).ok_or(AacProblem::Invalid)?;
    if &kind == b"Opus" {
        let form = OpusForm::read_box(find(inner, &[b"dOps"]).ok_or(AacProblem::Invalid)?);
        return form.map(Mp4Codec::Opus).map_err(|problem| match problem {
            OpusProblem::Invalid => AacProblem::Invalid,
            OpusProblem::Unsupported(what) => AacProblem::Unsupported(what),
        });
    }
    let esds = find(inner, &[b"esds"]).or_else(|| find(inner, &[b"wave", b"esds"])).ok_or(AacProblem::Invalid)?;
    let (kind, config) = decoder_config(esds.get(4..).unwrap_or_default()).ok_or(AacProblem::Invalid)?;
    if kind != 0x40 {
        return Err(AacProblem::Unsupported("a codec other than MPEG-4's AAC in MP4"));
    }
    AacForm::read(config).map(Mp4Codec::Aac)
}

/// Returns the codec and the configuration in descriptors (ISO/IEC 14496-1, 7.2.6).
fn decoder_config(bytes: &[u8]) -> Option<(u8, &[u8])> {
    let (3, stream) = descriptor(bytes)? else { return None };
    let flags = *stream.get(2)?;
    let skipped = 3 + if flags & 0x80 == 0 { 0 } else { 2 } + if flags & 0x20 == 0 { 0 } else { 2 };
    let skipped = skipped + if flags & 0x40 == 0 { 0 } else { 1 + usize::from(*stream.get(skipped)?) };
    let (4, config) = descriptor(stream.get(skipped..)?)? else { return None };
    let (5, specific) = descriptor(config.get(13..)?)? else { return None };
    Some((config[0], specific))
}

/// Returns the tag and the content of a descriptor.
fn descriptor(bytes: &[u8]) -> Option<(u8, &[u8])> {
    let (tag, mut rest) = bytes.split_first()?;
    let mut length = 0;
    for _ in 0..4 {
        let (byte, after) = rest.split_first()?;
        (length, rest) = (length << 7 | usize::from(byte & 0x7f), after);
        if byte & 0x80 == 0 {
            break;
        }
    }
    Some((*tag, rest.get(..length)?))
}

/// Returns the units of a second that times are in.
fn time_scale(content: &[u8]) -> Option<u64> {
    let scale = number(content, if *content.first()? == 1 { 20 } else { 12 })?;
    (scale > 0).then_some(u64::from(scale))
}

/// Returns the frames of Opus of all packets by their durations.
fn duration(track: &[u8], stbl: &[u8]) -> Option<u64> {
    let scale = time_scale(find(track, &[b"mdia", b"mdhd"])?)?;
    let runs = table::<8>(find(stbl, &[b"stts"])?)?;
    let number = |run: &[u8; 8], at: usize| u64::from(number(run, at).expect("8 bytes"));
    let time = runs.iter().map(|run| u128::from(number(run, 0) * number(run, 4))).sum::<u128>();
    Some(u64::try_from(time * u128::from(RATE) / u128::from(scale)).unwrap_or(u64::MAX))
}

/// Returns the first frame of the first edit that has a sound, and the frame at its end.
fn edit(moov: &[u8], track: &[u8], rate: u32) -> Option<(u64, Option<u64>)> {
    let of_movie = time_scale(find(moov, &[b"mvhd"])?)?;
    let of_track = time_scale(find(track, &[b"mdia", b"mdhd"])?)?;
    let list = find(track, &[b"edts", b"elst"])?;
    let edits: Vec<(u64, i64)> = if *list.first()? == 1 {
        let long = |bytes: &[u8; 20], at: usize| i64::from_be_bytes(*bytes[at..].first_chunk().expect("20 bytes"));
        table::<20>(list)?.iter().map(|edit| (long(edit, 0).cast_unsigned(), long(edit, 8))).collect()
    } else {
        let short = |bytes: &[u8; 12], at: usize| number(bytes, at).expect("12 bytes");
        table::<12>(list)?.iter().map(|edit| (short(edit, 0).into(), short(edit, 4).cast_signed().into())).collect()
    };
    // One without a time of the track is silence.
    let (duration, start) = edits.into_iter().find(|(_, start)| *start >= 0)?;
    let frames = |time: u64, scale: u64| {
        u64::try_from(u128::from(time) * u128::from(rate) / u128::from(scale)).unwrap_or(u64::MAX)
    };
    let start = frames(start.cast_unsigned(), of_track);
    let end = (duration > 0).then(|| start.saturating_add(frames(duration, of_movie)).min(u64::MAX / 2));
    Some((start, end))
}

/// Returns the frames that iTunes has put before the sound.
fn gapless(moov: &[u8]) -> Option<u64> {
    let meta = find(moov, &[b"udta", b"meta"])?.get(4..)?;
    let items = boxes(find(meta, &[b"ilst"])?).filter(|(kind, _)| kind == b"----");
    items.map(|(_, item)| item).find_map(|item| {
        let name = find(item, &[b"name"])?.get(4..)?;
        let text = std::str::from_utf8(find(item, &[b"data"])?.get(8..)?).ok().filter(|_| name == b"iTunSMPB")?;
        u64::from_str_radix(text.split_whitespace().nth(1)?, 16).ok().filter(|frames| *frames < 1 << 14)
    })
}

impl<'b> Mp4Packets<'b> {
    fn read(stbl: &'b [u8], file: &'b [u8]) -> Option<Self> {
        let sizes = find(stbl, &[b"stsz"])?;
        let (length, count) = (number(sizes, 4)?, number(sizes, 8)?);
        let lengths =
            if length == 0 { sizes.get(12..)?.as_chunks().0.get(..usize::try_from(count).ok()?)? } else { &[] };
        let (chunks, chunk_bytes) = match find(stbl, &[b"stco"]) {
            Some(content) => (table::<4>(content)?.as_flattened(), 4),
            None => (table::<8>(find(stbl, &[b"co64"])?)?.as_flattened(), 8),
        };
        let runs = table::<12>(find(stbl, &[b"stsc"])?)?;
        Some(Self {
            file,
            length,
            lengths,
            count,
            next: 0,
            chunks,
            chunk_bytes,
            next_chunk: 0,
            runs,
            left: 0,
            at: 0,
            passed: 0,
            opus: None,
        })
    }

    /// Returns the next packet.
    pub(crate) fn next(&mut self) -> Result<Option<CodedPacket<'b>>, MediaError> {
        if self.next == self.count {
            return Ok(None);
        }
        let damaged = |byte, problem| MediaError::Malformed { byte, problem };
        while self.left == 0 {
            let place = self.next_chunk as usize * self.chunk_bytes;
            let chunk = self.chunks.get(place..place + self.chunk_bytes);
            let chunk = chunk.ok_or_else(|| damaged(self.at, "the tables have more packets than chunks hold"))?;
            self.at = chunk.iter().fold(0, |place, byte| place << 8 | u64::from(*byte));
            // Runs count chunks from 1.
            while let [_, second, ..] = self.runs
                && number(second, 0) == Some(self.next_chunk + 1)
            {
                self.runs = &self.runs[1..];
            }
            self.left = self.runs.first().and_then(|run| number(run, 4)).unwrap_or_default();
            self.next_chunk += 1;
        }
        let length = match self.lengths {
            [] => self.length,
            lengths => u32::from_be_bytes(lengths[self.next as usize]),
        };
        let place = usize::try_from(self.at).ok();
        let bytes = place.and_then(|place| self.file.get(place..place.checked_add(length as usize)?));
        let bytes =
            bytes.ok_or(MediaError::Truncated { bytes: self.file.len() as u64, what: "the packets of its tables" })?;
        self.passed += u64::from(length);
        if length == 0 || self.passed > self.file.len() as u64 {
            return Err(damaged(self.at, "packets of the tables are empty, or lie over one another"));
        }
        (self.next, self.left, self.at) = (self.next + 1, self.left - 1, self.at + u64::from(length));
        let frames = match &mut self.opus {
            Some(packets) => {
                packets.frames(bytes).ok_or_else(|| damaged(self.at, "a packet of Opus has no valid head"))?
            }
            None => PACKET_FRAMES,
        };
        Ok(Some(CodedPacket { bytes, frames }))
    }
}
