//! Makes the table of a sound.

use super::{SoundCoding, SoundFacts};
use crate::{
    MediaError, SoundCodec, SoundContainer, Track, VideoPacket, encode_video_table,
    flac::{PacketPlace, PacketSearch},
    head::read_track,
    packets::{JoinedPackets, PacketStretch, PacketTable},
    video::encode_number,
};

/// The stretches of packets that a table has the places of are this part of a second long, or one packet. When raised, a table is longer;
/// when lowered, more bytes are read before and behind a segment.
const STRETCHES_PER_SECOND: u32 = 4;

/// Makes the table of a sound whose samples lie side by side, from its head alone; `None` if they do not.
#[must_use]
pub fn encode_pcm_table(track: &Track) -> Option<Vec<u8>> {
    let (SoundCodec::Pcm(sample), SoundContainer::Plain) = (track.codec, track.container) else { return None };
    let facts = SoundFacts { track: track.clone(), coding: SoundCoding::Pcm(sample) };
    encode(&facts, &[])
}

/// Makes the table of a sound file in memory; `None` if a segment of the file could not be decoded from its own bytes as it is from all of
/// them: it is damaged, other bytes lie between its packets, or these do not begin in pages.
///
/// # Errors
/// As [`Sound::open`](crate::Sound::open).
pub fn encode_sound_table(bytes: &[u8]) -> Result<Option<Vec<u8>>, MediaError> {
    let track = read_track(bytes)?;
    let least = u64::from(track.rate / STRETCHES_PER_SECOND);
    if let Some(table) = encode_pcm_table(&track) {
        return Ok(Some(table));
    }
    let joined = JoinedPackets::of_file(bytes, &track)?;
    let (facts, stretches) = match track.codec {
        SoundCodec::Pcm(sample) => {
            let frame_bytes = usize::from(track.channels) * sample.bytes() as usize;
            let Some(joined) = joined else { return Ok(None) };
            if joined.parts.iter().any(|part| !part.bytes.is_multiple_of(frame_bytes)) {
                return Ok(None);
            }
            let frames = joined.parts.iter().map(|part| (part.bytes / frame_bytes) as u64);
            let all = Some((joined.bytes.len() / frame_bytes) as u64);
            let Some(stretches) = joined.stretches(frames, least) else { return Ok(None) };
            (SoundFacts { track: Track { frames: all, ..track }, coding: SoundCoding::Pcm(sample) }, stretches)
        }
        SoundCodec::Flac(stream) => {
            let place = |byte: u64| usize::try_from(byte).unwrap_or(usize::MAX);
            let data = match &joined {
                Some(joined) => &joined.bytes[..],
                None => bytes.get(place(track.data.start)..place(track.data.end)).unwrap_or_default(),
            };
            let Ok(search) = PacketSearch::new(data, &track, stream) else { return Ok(None) };
            let Some(packets) = search.all() else { return Ok(None) };
            let frames = packets.last().map_or(0, |(last, _)| last.start + u64::from(last.frames));
            if track.frames.is_some_and(|told| told != frames) {
                return Ok(None);
            }
            let stretches = match &joined {
                Some(joined) => {
                    // Each part is a packet.
                    if !joined.parts.iter().map(|part| part.bytes).eq(packets.iter().map(|(_, bytes)| *bytes)) {
                        return Ok(None);
                    }
                    joined.stretches(packets.iter().map(|(place, _)| place.frames.into()), least)
                }
                None => Some(stretches_of_flac(&packets, track.data.start, least)),
            };
            let Some(stretches) = stretches else { return Ok(None) };
            let coding = SoundCoding::Flac { frames_each: search.frames_each() };
            (SoundFacts { track: Track { frames: Some(frames), ..track.clone() }, coding }, stretches)
        }
        _ => {
            let Some(table) = PacketTable::open(bytes, &track)? else { return Ok(None) };
            let frames = Some(table.frames());
            let Some((packets, stretches)) = table.stretches(&track, least)? else { return Ok(None) };
            (SoundFacts { track: Track { frames, ..track }, coding: SoundCoding::Packets(packets) }, stretches)
        }
    };
    Ok(encode(&facts, &stretches))
}

/// Returns the facts and the stretches; `None` if there are too many or too long ones.
fn encode(facts: &SoundFacts, stretches: &[PacketStretch]) -> Option<Vec<u8>> {
    let entries = stretches.iter().map(entry).collect::<Option<Vec<_>>>()?;
    let (facts, places) = (facts.encode(), encode_video_table(&entries).ok()?);
    let mut table = Vec::new();
    encode_number(facts.len() as u64, &mut table);
    Some([table, facts, places].concat())
}

/// Returns the entry of a stretch in a table of packets: such a table has the places and times of the packets of a video.
fn entry(stretch: &PacketStretch) -> Option<VideoPacket> {
    let PacketStretch { byte, bytes, frame, frames, follows_long } = *stretch;
    let time = i64::try_from(frame).ok()?;
    Some(VideoPacket {
        offset: byte,
        bytes: u32::try_from(bytes).ok()?,
        pts: time,
        dts: time,
        duration: u32::try_from(frames).ok()?,
        is_key: true,
        is_droppable: follows_long,
        is_shown: true,
    })
}

fn stretches_of_flac(packets: &[(PacketPlace, usize)], data: u64, least: u64) -> Vec<PacketStretch> {
    let mut stretches: Vec<PacketStretch> = Vec::new();
    for (place, bytes) in packets {
        let (bytes, frames) = (*bytes as u64, u64::from(place.frames));
        match stretches.last_mut().filter(|last| last.frames < least) {
            Some(last) => (last.bytes, last.frames) = (last.bytes + bytes, last.frames + frames),
            None => {
                let (byte, frame) = (data + place.byte as u64, place.start);
                stretches.push(PacketStretch { byte, bytes, frame, frames, follows_long: false });
            }
        }
    }
    stretches
}
