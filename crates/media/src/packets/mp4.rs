//! MP4 (M4A, MOV) as ISO/IEC 14496-12 has it: the first track of sound.

use std::ops::Range;

use super::{
    aac::{AacForm, PACKET_FRAMES},
    form::PlacedForm,
    head_problem::HeadProblem,
    mp4_description::SoundDescription,
    mpeg::{Mp3Header, mp3_frames},
    opus::{OpusForm, RATE},
    placed::PlacedPackets,
};
use crate::{
    MediaError, SoundContainer, Track,
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
    pub(super) form: PlacedForm<'b>,
    /// The first frame of the sound, and the frame up to which an edit takes packets.
    start: u64,
    end: Option<u64>,
    /// When its first frame is heard, in nanoseconds from the beginning of the movie.
    pub(crate) begin_nanos: i64,
    packets: PlacedPackets<'b>,
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
                let data = start..input.at() + head.bytes;
                let form = form(stbl_of(sound_track_of(moov)?, start)?);
                let form = form.map_err(|problem| problem.error(start, INVALID_HEAD))?;
                return form.track(SoundContainer::Mp4, data, start).map(Some);
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
const INVALID_HEAD: &str = "the head of the sound is not valid";

impl<'b> Mp4Sound<'b> {
    /// Reads the tables of a track that has been found.
    pub(crate) fn of_track(file: &'b [u8], track: &Track) -> Result<Self, MediaError> {
        let place = |byte: u64| usize::try_from(byte).unwrap_or(usize::MAX);
        let moov = file.get(place(track.data.start)..place(track.data.end)).unwrap_or_default();
        Self::read(moov, file, track.data.start)
    }

    /// Reads the content of the box `moov`, which begins at `byte` of the file.
    pub(crate) fn read(moov: &'b [u8], file: &'b [u8], byte: u64) -> Result<Self, MediaError> {
        let damaged = |problem| MediaError::Malformed { byte, problem };
        let track = sound_track_of(moov)?;
        let stbl = stbl_of(track, byte)?;
        let form = form(stbl).map_err(|problem| problem.error(byte, INVALID_HEAD))?;
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
        let edited = edit(moov, track, form.rate());
        let (start, end) = match form {
            PlacedForm::Aac(_) | PlacedForm::Mp3 { .. } => {
                let packet_frames =
                    if let PlacedForm::Mp3 { rate, .. } = form { mp3_frames(rate) } else { PACKET_FRAMES };
                let (start, end) = edited.unwrap_or_else(|| (gapless(moov).unwrap_or(0), None));
                (start, end.map(|end| end.next_multiple_of(packet_frames.into())))
            }
            PlacedForm::Opus(form) => {
                let (start, end) = edited.unwrap_or_else(|| (form.pre_skip.into(), None));
                // An edit is as long as that to a thousandth of a second, mostly; how much of the last packet is sound is in the durations,
                // unless packets are in fragments.
                let end = end.map(|end| end + u64::from(RATE / 1000));
                let durations = fragments.is_empty().then(|| duration(track, stbl)).flatten();
                (start, end.into_iter().chain(durations).min())
            }
            // All of them is there.
            PlacedForm::Vorbis(_) | PlacedForm::Flac(_) | PlacedForm::Pcm { .. } => (0, None),
        };
        // What comes before the edit is not heard.
        let unheard = i128::from(start) - i128::from(edited.map_or(0, |(start, _)| start));
        let unheard = unheard * i128::from(NANOS_PER_SECOND) / i128::from(form.rate().max(1));
        let begin_nanos = begin_nanos.saturating_add(i64::try_from(unheard).unwrap_or_default());
        let places = fragments.iter().map(|packet| PlacedPacket { offset: packet.offset, bytes: packet.bytes });
        let content = form.content().map_err(damaged)?;
        let packets = PlacedPackets::new(file, places.collect(), content).behind_tables(tables);
        Ok(Self { form, start, end, begin_nanos, packets })
    }

    pub(crate) fn packets(&self) -> PlacedPackets<'b> {
        self.packets.clone()
    }

    /// Returns the channels of the first packet, of MP3.
    pub(crate) fn mp3_channels(&self) -> Result<Option<u16>, MediaError> {
        let mut buffer = Vec::new();
        let packet = self.packets().next(&mut buffer)?;
        Ok(packet.and_then(|packet| Mp3Header::read(packet.bytes)).map(|header| header.form.channels))
    }

    /// Returns the frames that are the sound, of all `frames` that are decoded: of AAC as FFmpeg, which leaves packets whole that an edit ends in.
    pub(super) fn part(&self, frames: u64) -> Range<u64> {
        let end = self.end.map_or(frames, |end| end.min(frames));
        self.start.min(end)..end
    }
}

/// Returns the content of the first box `trak` of sound.
fn sound_track_of(moov: &[u8]) -> Result<&[u8], MediaError> {
    let mut tracks = boxes(moov).filter(|(kind, _)| kind == b"trak").map(|(_, track)| track);
    tracks.find(|track| handler(track) == Some(*b"soun")).ok_or(MediaError::NoSound)
}

/// Returns the tables of a track, of which `byte` is where the movie begins.
fn stbl_of(track: &[u8], byte: u64) -> Result<&[u8], MediaError> {
    let problem = "a track has no tables";
    find(track, &[b"mdia", b"minf", b"stbl"]).ok_or(MediaError::Malformed { byte, problem })
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
fn form(stbl: &[u8]) -> Result<PlacedForm<'_>, HeadProblem> {
    let described = SoundDescription::read(stbl).ok_or(HeadProblem::Invalid)?;
    match &described.kind {
        b"mp4a" | b".mp3" | b"Opus" | b"fLaC" => {}
        b"alac" => return Err(HeadProblem::Unsupported("ALAC in MP4")),
        b"ac-3" | b"ec-3" => return Err(HeadProblem::Unsupported("Dolby's AC-3")),
        b"enca" => return Err(HeadProblem::Unsupported("encrypted sound")),
        _ => {
            let codec = "a codec other than AAC, Opus, FLAC, MP3 and samples that are not coded in MP4";
            return described.pcm().ok_or(HeadProblem::Unsupported(codec));
        }
    }
    let content = |name: &[u8; 4]| find(described.inner, &[name]).ok_or(HeadProblem::Invalid);
    match &described.kind {
        b"Opus" => return OpusForm::read_box(content(b"dOps")?).map(PlacedForm::Opus),
        b"fLaC" => {
            let metadata = content(b"dfLa")?.get(4..).ok_or(HeadProblem::Invalid)?;
            return Ok(PlacedForm::Flac([b"fLaC", metadata].concat()));
        }
        b".mp3" => return described.mp3().ok_or(HeadProblem::Invalid),
        _ => {}
    }
    let esds = content(b"esds").or_else(|_| find(described.inner, &[b"wave", b"esds"]).ok_or(HeadProblem::Invalid))?;
    let (kind, config) = decoder_config(esds.get(4..).unwrap_or_default()).ok_or(HeadProblem::Invalid)?;
    match kind {
        0x40 => AacForm::read(config).map(PlacedForm::Aac),
        0x69 | 0x6b => described.mp3().ok_or(HeadProblem::Invalid),
        _ => Err(HeadProblem::Unsupported("a codec other than MPEG-4's AAC and MP3 in MP4")),
    }
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
