//! Ogg, as RFC 3533 has it: the pages of a file, and the packets of its first sound in them.

use super::{
    CodedPacket,
    joined::{JoinedPackets, JoinedPart},
    ogg_checksum::checksum,
    opus::{INVALID_HEAD, OpusForm, RATE, opus_frames},
    vorbis::{VorbisBlocks, rate_and_channels},
};
use crate::{MediaError, SoundCodec, SoundContainer, Track, flac::stream_info, input::Input};

/// The first bytes of a stream of FLAC, before its version, the number of its packets of metadata, the marker of FLAC and STREAMINFO.
pub(super) const FLAC_HEAD: &[u8] = b"\x7fFLAC";
const FLAC_HEAD_BYTES: usize = FLAC_HEAD.len() + 2 + 2;

/// More streams that begin than any program puts into one file.
const MAX_STREAMS: u32 = 64;
/// The most bytes of a packet. Comments may have pictures; sounds have far less.
const MAX_PACKET_BYTES: usize = 125_829_120;
/// Bytes of a page before the lengths of its segments.
const HEADER_BYTES: usize = 27;

const CONTINUES: u8 = 1;
const BEGINS: u8 = 2;
const ENDS: u8 = 4;

/// Finds the first stream of sound among those that begin a file.
#[derive(Clone, Debug, Default)]
pub(crate) struct OggHead {
    streams: u32,
    /// What is in the first stream.
    first: Option<&'static str>,
}

/// A page.
#[derive(Clone, Copy, Debug)]
struct OggPage<'b> {
    flags: u8,
    /// The frames of the sound up to the end of the last packet that ends here; `None` if none does.
    granule: Option<u64>,
    serial: u32,
    sequence: u32,
    segments: &'b [u8],
    body: &'b [u8],
}

/// What the packets of a stream are.
#[derive(Clone, Copy, Debug)]
pub(crate) enum OggContent {
    /// Packets before those of sound.
    Headers,
    Flac,
    Vorbis(VorbisBlocks),
    Opus,
}

/// The packets of one stream.
#[derive(Clone, Debug)]
pub(crate) struct OggPackets<'b> {
    bytes: &'b [u8],
    /// Place of the next page.
    next_page: usize,
    serial: u32,
    sequence: u32,
    /// What is left of the page that has been reached.
    segments: &'b [u8],
    body: &'b [u8],
    granule: Option<u64>,
    /// Whether the last page of the stream has been reached.
    is_last: bool,
    pub(crate) content: OggContent,
    frames: u64,
    pub(crate) times: OggTimes,
}

/// What pages say about the frames of a stream.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OggTimes {
    /// The frames of packets up to the end of the first page that ends some, and what that says of them.
    first: Option<(u64, u64)>,
    last: Option<u64>,
}

impl OggHead {
    /// Reads what is there; returns the track when the stream's first packet is found.
    pub(crate) fn read(&mut self, input: &mut Input<'_, '_>) -> Result<Option<Track>, MediaError> {
        loop {
            let header = HEADER_BYTES as u64;
            let Some(start) = input.peek(header, PAGE)? else { return Ok(None) };
            let header = header + u64::from(start[26]);
            let Some(page) = input.peek(header, PAGE)? else { return Ok(None) };
            let bytes = header + page[HEADER_BYTES..].iter().map(|length| u64::from(*length)).sum::<u64>();
            let Some(page) = input.peek(bytes, PAGE)? else { return Ok(None) };
            let page = OggPage::read(page).map_err(|problem| input.malformed(problem))?.0;
            if page.flags & BEGINS == 0 || self.streams == MAX_STREAMS {
                let what = self.first.unwrap_or("no stream");
                return Err(MediaError::Unsupported { what: format!("{what} in Ogg, and no Vorbis, Opus or FLAC") });
            }
            let (container, data) = (SoundContainer::Ogg, 0..input.file_bytes());
            match page.body {
                body if body.starts_with(b"\x01vorbis") => {
                    let read = rate_and_channels(body).map_err(|problem| input.malformed(problem));
                    let (rate, channels) = read?;
                    let codec = SoundCodec::Vorbis;
                    return Ok(Some(Track { codec, container, rate, channels, frames: None, data }));
                }
                body if body.starts_with(FLAC_HEAD) => {
                    let head = body.get(FLAC_HEAD_BYTES..).unwrap_or_default();
                    return Ok(Some(Track { container, data, ..stream_info(head, input.at())? }));
                }
                body if body.starts_with(b"OpusHead") => {
                    let form = OpusForm::read(body).map_err(|problem| problem.error(input.at(), INVALID_HEAD))?;
                    let (codec, channels) = (SoundCodec::Opus, form.channels.into());
                    return Ok(Some(Track { codec, container, rate: RATE, channels, frames: None, data }));
                }
                body => _ = self.first.get_or_insert(content_of(body)),
            }
            self.streams += 1;
            input.skip(bytes);
        }
    }
}

/// What the file ends within.
const PAGE: &str = "a page of Ogg";

/// Returns the name of a stream's content.
fn content_of(packet: &[u8]) -> &'static str {
    const CONTENTS: [(&[u8], &str); 4] =
        [(b"Speex   ", "Speex"), (b"\x80theora", "Theora"), (b"fishead\0", "a skeleton"), (b"\x80kate", "Kate")];
    CONTENTS.iter().find(|(begins, _)| packet.starts_with(begins)).map_or("an unknown stream", |(_, name)| name)
}

impl<'b> OggPage<'b> {
    /// Reads the page at the beginning of `bytes`, and returns it with its length.
    fn read(bytes: &'b [u8]) -> Result<(Self, usize), &'static str> {
        let ends = "the file ends within this page";
        let (header, rest) = bytes.split_at_checked(HEADER_BYTES).ok_or(ends)?;
        if !header.starts_with(b"OggS\0") {
            return Err("no page of Ogg begins here");
        }
        let (segments, rest) = rest.split_at_checked(header[26].into()).ok_or(ends)?;
        let length = segments.iter().map(|length| usize::from(*length)).sum();
        let body = rest.get(..length).ok_or(ends)?;
        let number = |at: usize| u32::from_le_bytes(*header[at..].first_chunk().expect("27 bytes"));
        if !cfg!(fuzzing) && checksum(&[&header[..22], &[0; 4], &header[26..], segments, body]) != number(22) {
            return Err("the page has a wrong checksum");
        }
        let granule = u64::from(number(6)) | u64::from(number(10)) << 32;
        let page = Self {
            flags: header[5],
            granule: (granule >> 63 == 0).then_some(granule),
            serial: number(14),
            sequence: number(18),
            segments,
            body,
        };
        Ok((page, HEADER_BYTES + segments.len() + length))
    }
}

impl<'b> OggPackets<'b> {
    /// Begins with the first packet of the stream whose first packet begins so.
    pub(crate) fn open(bytes: &'b [u8], begins: &[u8]) -> Result<Self, MediaError> {
        let mut at = 0;
        loop {
            let (page, length) = OggPage::read(&bytes[at..]).map_err(|problem| damaged(at, problem))?;
            if page.body.starts_with(begins) {
                return Ok(Self {
                    bytes,
                    next_page: at,
                    serial: page.serial,
                    sequence: page.sequence,
                    segments: &[],
                    body: &[],
                    granule: None,
                    is_last: false,
                    content: OggContent::Headers,
                    frames: 0,
                    times: OggTimes::default(),
                });
            }
            at += length;
        }
    }

    /// Begins with a page of a part of a file, in which a packet of this kind begins; `None` if none does.
    pub(super) fn of_part(bytes: &'b [u8], content: OggContent) -> Option<Self> {
        let (page, _) = OggPage::read(bytes).ok()?;
        Some(Self {
            bytes,
            next_page: 0,
            serial: page.serial,
            sequence: page.sequence,
            segments: &[],
            body: &[],
            granule: None,
            is_last: false,
            content,
            frames: 0,
            times: OggTimes::default(),
        })
    }

    /// Returns the place of the page that the next packet begins; `None` if it begins within a page, or there is none.
    pub(super) fn page_of_next(&self) -> Option<usize> {
        let mut at = self.next_page;
        while self.segments.is_empty() && !self.is_last {
            let (page, length) = OggPage::read(self.bytes.get(at..)?).ok()?;
            if page.serial == self.serial {
                return (page.flags & CONTINUES == 0).then_some(at);
            }
            at += length;
        }
        None
    }

    /// Returns the next packet: a part of the file, or what lies in several pages, put together in `buffer`.
    pub(crate) fn next<'p>(&mut self, buffer: &'p mut Vec<u8>) -> Result<Option<CodedPacket<'p>>, MediaError>
    where
        'b: 'p,
    {
        buffer.clear();
        loop {
            let Some(part) = self.part(buffer.is_empty())? else { return Ok(None) };
            let (part, is_end) = part;
            let place = self.next_page;
            if buffer.len() + part.len() > MAX_PACKET_BYTES {
                return Err(damaged(place, "a packet has more than 120 MiB"));
            }
            if !is_end {
                buffer.extend_from_slice(part);
                continue;
            }
            // Most packets lie in one page, and are not copied.
            let is_whole = buffer.is_empty();
            if !is_whole {
                buffer.extend_from_slice(part);
            }
            let packet = if is_whole { part } else { &buffer[..] };
            let Some(frames) = self.content.frames(packet).map_err(|problem| damaged(place, problem))? else {
                buffer.clear();
                continue;
            };
            self.frames += u64::from(frames);
            return Ok(Some(CodedPacket { bytes: if is_whole { part } else { buffer }, frames }));
        }
    }

    /// Returns the next part of a packet, and whether it is the packet's last.
    fn part(&mut self, is_first: bool) -> Result<Option<(&'b [u8], bool)>, MediaError> {
        while self.segments.is_empty() {
            if !self.next_page(is_first)? {
                return Ok(None);
            }
        }
        let full = self.segments.iter().take_while(|length| **length == 255).count();
        let is_end = full < self.segments.len();
        let (lengths, segments) = self.segments.split_at(full + usize::from(is_end));
        let (part, body) = self.body.split_at(lengths.iter().map(|length| usize::from(*length)).sum());
        (self.segments, self.body) = (segments, body);
        Ok(Some((part, is_end)))
    }

    /// Goes to the next page of the stream; returns `false` at its end.
    fn next_page(&mut self, is_first_part: bool) -> Result<bool, MediaError> {
        if let Some(granule) = self.granule.take() {
            if self.frames > 0 || granule > 0 {
                self.times.first.get_or_insert((self.frames, granule));
            }
            self.times.last = Some(granule);
        }
        loop {
            let at = self.next_page;
            let rest = self.bytes.get(at..).unwrap_or_default();
            if rest.is_empty() || (self.is_last && !rest.starts_with(b"OggS")) {
                return if is_first_part { Ok(false) } else { Err(damaged(at, "the file ends within a packet")) };
            }
            let (page, length) = OggPage::read(rest).map_err(|problem| damaged(at, problem))?;
            self.next_page += length;
            if page.flags & BEGINS != 0 && (self.is_last || !matches!(self.content, OggContent::Headers)) {
                let what = "several sounds one after the other, which makes it a chained Ogg file".to_owned();
                return Err(MediaError::Unsupported { what });
            }
            if page.serial != self.serial || self.is_last {
                continue;
            }
            if page.sequence != self.sequence {
                return Err(damaged(at, "the page is not the next one"));
            }
            self.sequence = self.sequence.wrapping_add(1);
            self.is_last = page.flags & ENDS != 0;
            (self.segments, self.body, self.granule) = (page.segments, page.body, page.granule);
            if is_first_part && page.flags & CONTINUES != 0 {
                // The end of a packet whose beginning is in no page.
                self.part(true)?;
            }
            return Ok(true);
        }
    }

    /// Returns all packets of FLAC end to end.
    pub(super) fn join(mut self) -> Result<JoinedPackets, MediaError> {
        let (mut joined, mut buffer) = (JoinedPackets::default(), Vec::new());
        loop {
            let begins = self.page_of_next().map(|page| page as u64);
            let Some(packet) = self.next(&mut buffer)? else { return Ok(joined) };
            // The first byte of metadata tells their kind, which is another one.
            if packet.bytes.first() != Some(&0xff) {
                continue;
            }
            self.content = OggContent::Flac;
            joined.bytes.extend_from_slice(packet.bytes);
            joined.parts.push(JoinedPart { begins, end: self.next_page as u64, bytes: packet.bytes.len() });
        }
    }

    /// Returns the place of the next page.
    pub(crate) const fn at(&self) -> usize {
        self.next_page
    }
}

impl OggContent {
    /// Returns the number of frames that are decoded of the next packet; `None` if it is no sound.
    fn frames(&mut self, packet: &[u8]) -> Result<Option<u32>, &'static str> {
        match self {
            // The frames of FLAC are counted elsewhere.
            Self::Headers | Self::Flac => Ok(Some(0)),
            Self::Vorbis(blocks) => blocks.frames(packet),
            Self::Opus => Ok(opus_frames(packet)),
        }
    }
}

impl OggTimes {
    /// Returns the frames up to the end of the sound, of all `frames` that are decoded, and those that come before its start.
    pub(crate) fn part(self, frames: u64) -> (u64, u64) {
        let (Some((counted, granule)), Some(last)) = (self.first, self.last) else { return (0, frames) };
        if self.last == Some(granule) && counted >= granule {
            // One page has all.
            return (0, granule.min(frames));
        }
        // A sound that was cut out of another one begins late; one with fewer frames than its packets begins before its start.
        let end = if granule >= counted { last.saturating_sub(granule - counted) } else { last + (counted - granule) };
        (counted.saturating_sub(granule), end.min(frames))
    }

    /// Returns the same of Opus, whose first `pre_skip` frames come before the sound; `None` if the first page tells fewer frames than it has.
    pub(crate) fn part_of_opus(self, frames: u64, pre_skip: u64) -> Option<(u64, u64)> {
        let end = match (self.first, self.last) {
            (Some((counted, granule)), Some(last)) if granule >= counted => last.saturating_sub(granule - counted),
            // Only the last page may tell fewer.
            (Some((_, granule)), Some(last)) if granule == last => last,
            (Some(_), Some(_)) => return None,
            _ => frames,
        };
        let end = end.min(frames);
        Some((pre_skip.min(end), end))
    }
}

const fn damaged(byte: usize, problem: &'static str) -> MediaError {
    MediaError::Malformed { byte: byte as u64, problem }
}
