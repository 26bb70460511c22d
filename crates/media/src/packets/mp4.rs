//! MP4 (M4A, MOV) as ISO/IEC 14496-12 has it: the first track of sound, if it is AAC or Opus.

use std::{ops::Range, sync::Arc};

use super::{
    CodedPacket,
    aac::{AacForm, PACKET_FRAMES},
    head_problem::HeadProblem,
    opus::{OpusForm, RATE, opus_frames},
};
use crate::{
    MediaError, SoundCodec, Track,
    input::Input,
    mp4::{
        Edit, PlacedPacket, SamplePlaces,
        boxes::{BoxHead, MAX_MOOV_BYTES, boxes, find, handler, number, table, time_scale},
        decoder_config, edits, fragment_packets, track_id,
    },
};

/// More boxes at the top than files have.
const MAX_BOXES: u32 = 1 << 16;
const NANOS_PER_SECOND: u32 = 1_000_000_000;

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
    /// When its first frame is heard, in nanoseconds from the beginning of the movie.
    pub(crate) begin_nanos: i64,
    packets: Mp4Packets<'b>,
}

/// The packets of a track of another codec.
#[derive(Clone, Debug)]
pub(crate) struct Mp4SoundPackets<'b> {
    /// When the sound begins, in nanoseconds from the beginning of the movie.
    pub(crate) begin_nanos: i64,
    /// How long the packets are that come before, in nanoseconds.
    pub(crate) unheard_nanos: i64,
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
    tables: SamplePlaces<'b>,
    /// Those of fragments, behind those of the tables.
    fragments: Arc<[PlacedPacket]>,
    /// The next one of them.
    next: usize,
    /// What is known of packets of Opus.
    is_opus: bool,
}

impl Mp4Head {
    /// Returns whether a file with these first bytes is one of MP4.
    pub(crate) fn recognise(begins: &[u8]) -> bool {
        matches!(begins.get(4..8), Some(b"ftyp" | b"moov" | b"wide" | b"free" | b"skip" | b"mdat"))
    }

    /// Reads what is there; returns the track when the box `moov` has been found.
    pub(crate) fn read(&mut self, input: &mut Input<'_, '_>) -> Result<Option<Track>, MediaError> {
        loop {
            let Some(head) = BoxHead::read(input, MOOV)? else { return Ok(None) };
            if &head.kind == b"moov" {
                if head.bytes > MAX_MOOV_BYTES {
                    return Err(input.malformed("the box `moov` has more than 64 MiB"));
                }
                let Some(moov) = head.content(input, MOOV)? else { return Ok(None) };
                let start = input.at() + head.head_bytes;
                let (codec, rate, channels) = match Mp4Sound::read(moov, &[], start)?.codec {
                    Mp4Codec::Aac(AacForm { rate, channels }) => (SoundCodec::AacInMp4, rate, channels),
                    Mp4Codec::Opus(form) => (SoundCodec::OpusInMp4, RATE, form.channels.into()),
                };
                let data = start..input.at() + head.bytes;
                return Ok(Some(Track { codec, rate, channels, frames: None, data }));
            }
            self.boxes += 1;
            if self.boxes > MAX_BOXES {
                return Err(input.malformed("more than 65,536 boxes come before the box `moov`"));
            }
            input.skip(head.bytes);
        }
    }
}

/// What the file ends within.
const MOOV: &str = "its boxes: none is `moov`";

impl<'b> Mp4Sound<'b> {
    /// Reads the content of the box `moov`, which begins at `byte` of the file.
    pub(crate) fn read(moov: &'b [u8], file: &'b [u8], byte: u64) -> Result<Self, MediaError> {
        let damaged = |problem| MediaError::Malformed { byte, problem };
        let unsupported = |what: &str| MediaError::Unsupported { what: what.to_owned() };
        let track = sound_track(moov).ok_or_else(|| unsupported("no track of sound"))?;
        let stbl = find(track, &[b"mdia", b"minf", b"stbl"]).ok_or_else(|| damaged("a track has no tables"))?;
        let codec = codec(stbl).map_err(|problem| problem.error(byte, "the head of the sound is not valid"))?;
        let Mp4SoundPackets { begin_nanos, mut packets, .. } = Mp4SoundPackets::read(moov, track, file, byte)?;
        let fragments = &packets.fragments;
        let (start, end) = match codec {
            Mp4Codec::Aac(form) => {
                let (start, end) = edit(moov, track, form.rate).unwrap_or_else(|| (gapless(moov).unwrap_or(0), None));
                (start, end.map(|end| end.next_multiple_of(PACKET_FRAMES.into())))
            }
            Mp4Codec::Opus(form) => {
                let (start, end) = edit(moov, track, RATE).unwrap_or_else(|| (form.pre_skip.into(), None));
                // An edit is as long as that to a thousandth of a second, mostly; how much of the last packet is sound is in the durations,
                // unless packets are in fragments.
                let end = end.map(|end| end + u64::from(RATE / 1000));
                let durations = fragments.is_empty().then(|| duration(track, stbl)).flatten();
                (start, end.into_iter().chain(durations).min())
            }
        };
        // Without an edit, the first frames are decoded, and not heard.
        let (rate, is_edited) = (codec.rate(), edit(moov, track, 1).is_some());
        let unheard = if is_edited { 0 } else { nanos(start, rate) };
        packets.is_opus = matches!(codec, Mp4Codec::Opus(_));
        Ok(Self { codec, start, end, begin_nanos: begin_nanos.saturating_add(unheard), packets })
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

impl Mp4Codec {
    const fn rate(self) -> u32 {
        match self {
            Self::Aac(form) => form.rate,
            Self::Opus(_) => RATE,
        }
    }
}

impl<'b> Mp4SoundPackets<'b> {
    /// Reads the tables of a track in the content of the box `moov`, which begins at `byte` of the file.
    pub(crate) fn read(moov: &'b [u8], track: &'b [u8], file: &'b [u8], byte: u64) -> Result<Self, MediaError> {
        let damaged = |problem| MediaError::Malformed { byte, problem };
        let stbl = find(track, &[b"mdia", b"minf", b"stbl"]).ok_or_else(|| damaged("a track has no tables"))?;
        let tables = SamplePlaces::read(stbl, file.len() as u64);
        let tables = tables.ok_or_else(|| damaged("the tables of the sound are not valid"))?;
        let fragments = match find(track, &[b"tkhd"]).and_then(track_id).zip(find(moov, &[b"mvex"])) {
            Some((id, mvex)) => fragment_packets(mvex, id, file)?,
            None => Vec::new(),
        };
        let mut begin_nanos = pause_nanos(moov, track);
        if tables.count() == 0
            && let Some((first, scale)) = fragments.first().zip(find(track, &[b"mdia", b"mdhd"]).and_then(time_scale))
        {
            begin_nanos = begin_nanos.saturating_add(nanos(first.dts.max(0).cast_unsigned(), scale));
        }
        let fragments = fragments.iter().map(|packet| PlacedPacket { offset: packet.offset, bytes: packet.bytes });
        let packets = Mp4Packets { file, tables, fragments: fragments.collect(), next: 0, is_opus: false };
        let unheard = edit(moov, track, NANOS_PER_SECOND).map_or(0, |(start, _)| start);
        let unheard_nanos = i64::try_from(unheard).unwrap_or(i64::MAX);
        Ok(Self { begin_nanos, unheard_nanos, packets })
    }

    /// Returns the bytes of all packets.
    pub(crate) fn bytes(self) -> Result<Vec<u8>, MediaError> {
        let (mut packets, mut all) = (self.packets, Vec::new());
        while let Some(PlacedPacket { offset, bytes }) = packets.next_place()? {
            // Those of samples that are not coded are a frame each, and lie side by side.
            let bytes = u64::from(bytes) + packets.tables.pass_chunk();
            let place = usize::try_from(offset).ok().zip(usize::try_from(bytes).ok());
            let bytes = place.and_then(|(from, bytes)| packets.file.get(from..from.checked_add(bytes)?));
            let truncated = MediaError::Truncated { bytes: packets.file.len() as u64, what: "a packet" };
            all.extend_from_slice(bytes.ok_or(truncated)?);
        }
        Ok(all)
    }
}

/// Returns the content of the first box `trak` of sound.
pub(crate) fn sound_track(moov: &[u8]) -> Option<&[u8]> {
    let mut tracks = boxes(moov).filter(|(kind, _)| kind == b"trak").map(|(_, track)| track);
    tracks.find(|track| handler(track) == Some(*b"soun"))
}

/// Returns how long nothing is heard before the first edit that has a sound, in nanoseconds.
fn pause_nanos(moov: &[u8], track: &[u8]) -> i64 {
    let Some(scale) = find(moov, &[b"mvhd"]).and_then(time_scale) else { return 0 };
    let edits = edits(track).unwrap_or_default();
    let pauses = edits.iter().take_while(|edit| edit.start < 0).map(|edit| edit.duration);
    nanos(pauses.fold(0, u64::saturating_add), scale)
}

/// Returns a time of so many units of a second in nanoseconds.
fn nanos(time: u64, scale: u32) -> i64 {
    let nanos = u128::from(time) * u128::from(NANOS_PER_SECOND) / u128::from(scale);
    i64::try_from(nanos).unwrap_or(i64::MAX)
}

/// Reads what the samples of the track are.
fn codec(stbl: &[u8]) -> Result<Mp4Codec, HeadProblem> {
    let entries = find(stbl, &[b"stsd"]).and_then(|content| content.get(8..)).ok_or(HeadProblem::Invalid)?;
    let (kind, entry) = boxes(entries).next().ok_or(HeadProblem::Invalid)?;
    match &kind {
        b"mp4a" | b"Opus" => {}
        b"alac" => return Err(HeadProblem::Unsupported("ALAC in MP4")),
        b"fLaC" => return Err(HeadProblem::Unsupported("FLAC in MP4")),
        b"ac-3" | b"ec-3" => return Err(HeadProblem::Unsupported("Dolby's AC-3")),
        b"enca" => return Err(HeadProblem::Unsupported("encrypted sound")),
        _ => return Err(HeadProblem::Unsupported("a codec other than AAC and Opus in MP4")),
    }
    // QuickTime's descriptions of version 1 and 2 have more fields, and the box in another one.
    let fields = match entry.get(8..10) {
        Some([0, 1]) => 28 + 16,
        Some([0, 2]) => 28 + 36,
        _ => 28,
    };
    let inner = entry.get(fields..).ok_or(HeadProblem::Invalid)?;
    if &kind == b"Opus" {
        let form = OpusForm::read_box(find(inner, &[b"dOps"]).ok_or(HeadProblem::Invalid)?);
        return form.map(Mp4Codec::Opus);
    }
    let esds = find(inner, &[b"esds"]).or_else(|| find(inner, &[b"wave", b"esds"])).ok_or(HeadProblem::Invalid)?;
    let (kind, config) = decoder_config(esds.get(4..).unwrap_or_default()).ok_or(HeadProblem::Invalid)?;
    if kind != 0x40 {
        return Err(HeadProblem::Unsupported("a codec other than MPEG-4's AAC in MP4"));
    }
    AacForm::read(config).map(Mp4Codec::Aac)
}

/// Returns the frames of Opus of all packets by their durations.
fn duration(track: &[u8], stbl: &[u8]) -> Option<u64> {
    let scale = find(track, &[b"mdia", b"mdhd"]).and_then(time_scale)?;
    let runs = table::<8>(find(stbl, &[b"stts"])?)?;
    let number = |run: &[u8; 8], at: usize| u64::from(number(run, at).expect("8 bytes"));
    let time = runs.iter().map(|run| u128::from(number(run, 0) * number(run, 4))).sum::<u128>();
    Some(u64::try_from(time * u128::from(RATE) / u128::from(scale)).unwrap_or(u64::MAX))
}

/// Returns the first frame of the first edit that has a sound, and the frame at its end.
fn edit(moov: &[u8], track: &[u8], rate: u32) -> Option<(u64, Option<u64>)> {
    let of_movie = u64::from(find(moov, &[b"mvhd"]).and_then(time_scale)?);
    let of_track = u64::from(find(track, &[b"mdia", b"mdhd"]).and_then(time_scale)?);
    // One without a time of the track is silence.
    let Edit { duration, start, .. } = edits(track)?.into_iter().find(|edit| edit.start >= 0)?;
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
    /// Returns where the next packet lies.
    pub(super) fn place(&self) -> Result<Option<PlacedPacket>, MediaError> {
        self.clone().next_place()
    }

    fn next_place(&mut self) -> Result<Option<PlacedPacket>, MediaError> {
        if let Some(place) = self.tables.next()? {
            return Ok(Some(place));
        }
        let place = self.fragments.get(self.next).copied();
        self.next += usize::from(place.is_some());
        Ok(place)
    }

    /// Returns the next packet.
    pub(crate) fn next(&mut self) -> Result<Option<CodedPacket<'b>>, MediaError> {
        let Some(PlacedPacket { offset, bytes }) = self.next_place()? else { return Ok(None) };
        let place = usize::try_from(offset).ok();
        let bytes = place.and_then(|place| self.file.get(place..place.checked_add(bytes as usize)?));
        let bytes = bytes.ok_or(MediaError::Truncated { bytes: self.file.len() as u64, what: "a packet" })?;
        let frames = if self.is_opus { opus_frames(bytes) } else { Some(PACKET_FRAMES) };
        let problem = "a packet of Opus has no valid head";
        let frames = frames.ok_or(MediaError::Malformed { byte: offset, problem })?;
        Ok(Some(CodedPacket { bytes, frames }))
    }
}
