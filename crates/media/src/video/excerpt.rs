//! Excerpts of videos: what decoding some frames takes, without the rest of the file.

use super::{
    Video, VideoCodec, VideoColor, VideoPacket, VideoReader, VideoRotation, VideoTable, VideoTrack, encode_video_table,
    reference::is_whole_key,
};
use crate::MediaError;

/// The first bytes of an excerpt.
const MAGIC: &[u8; 8] = b"SPDLEXC\n";
/// The codecs, by their numbers in an excerpt; 255 is another one, by its name.
const CODECS: [VideoCodec; 9] = [
    VideoCodec::H264,
    VideoCodec::Hevc,
    VideoCodec::Av1,
    VideoCodec::Vp8,
    VideoCodec::Vp9,
    VideoCodec::Mpeg4,
    VideoCodec::Mpeg2,
    VideoCodec::Mpeg1,
    VideoCodec::Mjpeg,
];
const OTHER_CODEC: u8 = u8::MAX;

/// A video in memory: a whole file, or an [excerpt](encode_video_excerpt) of one. An excerpt says as much of the video as the file
/// does, and has the bytes of some packets alone.
#[derive(Clone, Debug)]
pub struct OpenVideo<'b> {
    /// What is known of the video.
    pub video: Video,
    /// The bytes of its packets.
    pub bytes: VideoBytes<'b>,
}

/// The bytes of a video's packets: of all, or of those in an excerpt.
#[derive(Clone, Debug)]
pub struct VideoBytes<'b>(PacketSource<'b>);

#[derive(Clone, Debug)]
enum PacketSource<'b> {
    File(&'b [u8]),
    /// The packets that are there, by their numbers, and their bytes.
    Excerpt(Vec<(u32, &'b [u8])>),
}

impl<'b> OpenVideo<'b> {
    /// Reads where the packets of a video lie. Those that the file says are keys, and from which on pictures are not whole at once, are
    /// none here, if their bytes are there.
    ///
    /// # Errors
    /// As [`VideoReader::read`], and if an excerpt is damaged.
    pub fn open(bytes: &'b [u8]) -> Result<Self, MediaError> {
        let Self { mut video, bytes } = Self::read(bytes)?;
        let VideoTrack { codec, extra_data, .. } = &video.track;
        for (nth, packet) in video.packets.iter_mut().enumerate().filter(|(_, packet)| packet.is_key) {
            packet.is_key = bytes.packet(nth, packet).is_none_or(|bytes| is_whole_key(codec, extra_data, bytes));
        }
        Ok(Self { video, bytes })
    }

    fn read(bytes: &'b [u8]) -> Result<Self, MediaError> {
        if let Some(excerpt) = bytes.strip_prefix(MAGIC) {
            return read_excerpt(excerpt).ok_or(MediaError::Malformed { byte: 0, problem: "the excerpt of a video" });
        }
        let mut reader = VideoReader::new(bytes.len() as u64);
        loop {
            let wanted = reader.wants();
            let [from, to] = [wanted.start, wanted.end].map(|byte| usize::try_from(byte).unwrap_or(usize::MAX));
            if let Some(video) = reader.read(bytes.get(from..to).unwrap_or_default())? {
                return Ok(Self { video, bytes: VideoBytes(PacketSource::File(bytes)) });
            }
        }
    }
}

impl<'b> VideoBytes<'b> {
    /// Returns the bytes of a packet, which is number `nth` of the video; `None` if the file or the excerpt does not have it.
    #[must_use]
    pub fn packet(&self, nth: usize, packet: &VideoPacket) -> Option<&'b [u8]> {
        match &self.0 {
            PacketSource::File(file) => {
                let from = usize::try_from(packet.offset).ok()?;
                file.get(from..from.checked_add(packet.bytes as usize)?)
            }
            PacketSource::Excerpt(packets) => {
                let found = packets.binary_search_by_key(&nth, |(packet, _)| *packet as usize).ok()?;
                Some(packets[found].1)
            }
        }
    }
}

/// Makes an excerpt of a video: what is known of it, and the bytes of the packets with these numbers, in their order. `bytes_of` returns
/// the bytes of a packet. `None` if it does not have one, there is no such packet, or they are not in their order.
///
/// It is for [`OpenVideo::open`] in the same process, and is not kept.
///
/// # Errors
/// As [`encode_video_table`].
pub fn encode_video_excerpt<B: AsRef<[u8]>>(
    video: &Video,
    packets: &[usize],
    mut bytes_of: impl FnMut(usize) -> Option<B>,
) -> Result<Option<Vec<u8>>, MediaError> {
    let mut excerpt = MAGIC.to_vec();
    append_part(&mut excerpt, &track_bytes(video));
    append_part(&mut excerpt, &encode_video_table(&video.packets)?);
    append_number(&mut excerpt, packets.len());
    for packet in packets {
        append_number(&mut excerpt, *packet);
    }
    if !packets.is_sorted_by(|one, next| one < next) {
        return Ok(None);
    }
    for packet in packets {
        let bytes = video.packets.get(*packet).zip(bytes_of(*packet));
        let Some((packet, bytes)) = bytes else { return Ok(None) };
        if bytes.as_ref().len() != packet.bytes as usize {
            return Ok(None);
        }
        excerpt.extend_from_slice(bytes.as_ref());
    }
    Ok(Some(excerpt))
}

fn read_excerpt(mut bytes: &[u8]) -> Option<OpenVideo<'_>> {
    let (track, tracks) = read_track(take_part(&mut bytes)?)?;
    let table = take_part(&mut bytes)?;
    let read = VideoTable::read(table).ok()?;
    let blocks = 0..read.blocks();
    let place = read.place(blocks.clone());
    let place = usize::try_from(place.start).ok()?..usize::try_from(place.end).ok()?;
    let packets = read.read_blocks(blocks, table.get(place)?).ok()?.packets().to_vec();
    let count = take_number(&mut bytes)?;
    let numbers = bytes.split_off(..usize::try_from(count).ok()?.checked_mul(4)?)?.as_chunks().0;
    let mut there = Vec::with_capacity(numbers.len());
    for number in numbers {
        let number = u32::from_le_bytes(*number);
        let packet = packets.get(number as usize)?;
        if there.last().is_some_and(|(before, _)| *before >= number) {
            return None;
        }
        there.push((number, bytes.split_off(..packet.bytes as usize)?));
    }
    let video = Video { track, tracks, packets };
    bytes.is_empty().then_some(OpenVideo { video, bytes: VideoBytes(PacketSource::Excerpt(there)) })
}

pub(super) fn track_bytes(Video { track, tracks, .. }: &Video) -> Vec<u8> {
    let VideoTrack { id, codec, extra_data, packet_prefix, width, height, rotation, pixel_aspect, color, time_base } =
        track;
    let mut bytes = id.to_le_bytes().to_vec();
    let known = CODECS.iter().position(|known| known == codec);
    bytes.push(known.and_then(|known| u8::try_from(known).ok()).unwrap_or(OTHER_CODEC));
    append_part(
        &mut bytes,
        match codec {
            VideoCodec::Other(name) => name.as_bytes(),
            _ => &[],
        },
    );
    append_part(&mut bytes, extra_data);
    append_part(&mut bytes, packet_prefix);
    let numbers = [*width, *height, rotation.degrees(), pixel_aspect[0], pixel_aspect[1], time_base[0], time_base[1]];
    let VideoColor { primaries, transfer, matrix, is_full_range } = color;
    let range = is_full_range.map_or(2, u32::from);
    for number in
        numbers.into_iter().chain([primaries, transfer, matrix].map(|number| u32::from(*number))).chain([range])
    {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    append_number(&mut bytes, *tracks);
    bytes
}

pub(super) fn read_track(mut bytes: &[u8]) -> Option<(VideoTrack, usize)> {
    let id = u64::from_le_bytes(*bytes.split_off(..8)?.first_chunk()?);
    let codec = *bytes.split_off_first()?;
    let name = take_part(&mut bytes)?;
    let codec = match codec {
        OTHER_CODEC => VideoCodec::Other(str::from_utf8(name).ok()?.to_owned()),
        known => CODECS.get(usize::from(known))?.clone(),
    };
    let [extra_data, packet_prefix] = [take_part(&mut bytes)?, take_part(&mut bytes)?].map(<[u8]>::to_vec);
    let mut number = || take_number(&mut bytes);
    let (width, height) = (number()?, number()?);
    let rotation = match number()? {
        0 => VideoRotation::None,
        90 => VideoRotation::Quarter,
        180 => VideoRotation::Half,
        270 => VideoRotation::ThreeQuarters,
        _ => return None,
    };
    let (pixel_aspect, time_base) = ([number()?, number()?], [number()?, number()?]);
    let mut code = || u16::try_from(number()?).ok();
    let (primaries, transfer, matrix) = (code()?, code()?, code()?);
    let is_full_range = match number()? {
        0 => Some(false),
        1 => Some(true),
        2 => None,
        _ => return None,
    };
    let tracks = usize::try_from(number()?).ok()?;
    let color = VideoColor { primaries, transfer, matrix, is_full_range };
    let track =
        VideoTrack { id, codec, extra_data, packet_prefix, width, height, rotation, pixel_aspect, color, time_base };
    bytes.is_empty().then_some((track, tracks))
}

/// Appends a number below 2^32, which all numbers and lengths of a video are.
fn append_number(bytes: &mut Vec<u8>, number: usize) {
    bytes.extend_from_slice(&u32::try_from(number).unwrap_or(u32::MAX).to_le_bytes());
}

pub(super) fn append_part(bytes: &mut Vec<u8>, part: &[u8]) {
    append_number(bytes, part.len());
    bytes.extend_from_slice(part);
}

fn take_number(bytes: &mut &[u8]) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.split_off(..4)?.first_chunk()?))
}

pub(super) fn take_part<'b>(bytes: &mut &'b [u8]) -> Option<&'b [u8]> {
    let length = take_number(bytes)?;
    bytes.split_off(..length as usize)
}
