//! Reads the head of a sound file from ranges of its bytes, in whatever way these are fetched.

use std::ops::Range;

use crate::{
    MediaError, SoundCodec, SoundContainer, Track,
    aiff::AiffHead,
    au::AuHead,
    caf::CafHead,
    flac::FlacHead,
    input::{Cursor, Input},
    matroska::{MatroskaHead, SegmentReader},
    packets::{Mp3Head, Mp4Head, Mp4Sound, OggHead, is_adts, read_adts_head},
    wav::WavHead,
};

/// The bytes that a first request asks for: enough for all of the heads that most programs write.
const REQUEST_BYTES: u64 = 4096;

/// The bytes that formats are recognised by.
const FIRST_BYTES: u64 = 16;

/// Reads the head of a file. [`wants`](Self::wants) is the range of bytes that it needs next, and [`read`](Self::read)
/// takes them, until that returns a track; of MP3 in MP4 its channels are those that the container tells. What lies between the parts of a head, such as pictures, is not asked for.
///
/// ```
/// # fn main() -> Result<(), spdl_media::MediaError> {
/// # let file = *b"RIFF\x26\0\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0\x80\x3e\0\0\0\x7d\0\0\x02\0\x10\0data\x02\0\0\0\0\0";
/// let mut reader = spdl_media::HeadReader::new(file.len() as u64);
/// let track = loop {
///     let wanted = reader.wants();
///     if let Some(track) = reader.read(&file[wanted.start as usize..wanted.end as usize])? {
///         break track;
///     }
/// };
/// assert_eq!((track.rate, track.channels, track.frames), (16_000, 1, Some(1)));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct HeadReader {
    format: HeadFormat,
    cursor: Cursor,
    /// Whether a tag comes first.
    is_tagged: bool,
    /// The first bytes of a file that is of no other format than MP3.
    begins: Vec<u8>,
}

#[derive(Clone, Debug)]
enum HeadFormat {
    Unknown,
    Wav(WavHead),
    Aiff(AiffHead),
    Au(AuHead),
    Caf(CafHead),
    Flac(FlacHead),
    Mp3(Mp3Head),
    Ogg(OggHead),
    Adts,
    Mp4(Mp4Head),
    Matroska(MatroskaHead),
}

/// Reads the head of a file in memory, and what packets of MP3 in MP4 tell of their channels, as their container may tell others.
pub(crate) fn read_track(bytes: &[u8]) -> Result<Track, MediaError> {
    let mut reader = HeadReader::new(bytes.len() as u64);
    let mut track = loop {
        let start = usize::try_from(reader.wants().start).unwrap_or(bytes.len());
        if let Some(track) = reader.read(bytes.get(start..).unwrap_or_default())? {
            break track;
        }
    };
    if (track.codec, track.container) == (SoundCodec::Mp3, SoundContainer::Mp4) {
        track.channels = Mp4Sound::of_track(bytes, &track)?.mp3_channels()?.unwrap_or(track.channels);
    }
    Ok(track)
}

impl HeadReader {
    /// Begins to read the head of a file of `file_bytes` bytes.
    #[must_use]
    pub const fn new(file_bytes: u64) -> Self {
        let cursor = Cursor::new(file_bytes, FIRST_BYTES);
        Self { format: HeadFormat::Unknown, cursor, is_tagged: false, begins: Vec::new() }
    }

    /// Returns the range of bytes that [`read`](Self::read) takes next. It lies in the file, and is empty only for an empty one.
    #[must_use]
    pub fn wants(&self) -> Range<u64> {
        self.cursor.wants(REQUEST_BYTES)
    }

    /// Reads `bytes`, which begin at the first byte that is wanted, and returns what the head says once all of it was there.
    /// Otherwise, another range is wanted.
    ///
    /// # Errors
    /// If the file is of another format, of a kind that is not decoded, cut off within its head, or damaged there.
    pub fn read(&mut self, bytes: &[u8]) -> Result<Option<Track>, MediaError> {
        let mut input = Input::new(&mut self.cursor, bytes);
        loop {
            match &mut self.format {
                HeadFormat::Wav(head) => return head.read(&mut input),
                HeadFormat::Aiff(head) => return head.read(&mut input),
                HeadFormat::Au(head) => return head.read(&mut input),
                HeadFormat::Caf(head) => return head.read(&mut input),
                HeadFormat::Flac(head) => return head.read(&mut input),
                HeadFormat::Adts => return read_adts_head(&mut input),
                HeadFormat::Mp4(head) => return head.read(&mut input),
                HeadFormat::Matroska(head) => return head.read(&mut input),
                HeadFormat::Ogg(head) => return head.read(&mut input),
                HeadFormat::Mp3(head) => match head.read(&mut input) {
                    Ok(track) => return Ok(track),
                    Err(Some(error)) => return Err(error),
                    Err(None) => return Err(MediaError::NotSound { begins: self.begins.escape_ascii().to_string() }),
                },
                HeadFormat::Unknown => {}
            }
            let most = input.file_bytes().min(FIRST_BYTES);
            let Some(begins) = input.peek(most, "its first bytes")? else { return Ok(None) };
            self.format = if let Some(head) = WavHead::recognise(begins) {
                HeadFormat::Wav(head)
            } else if let Some(head) = AiffHead::recognise(begins) {
                HeadFormat::Aiff(head)
            } else if let Some(head) = AuHead::recognise(begins) {
                HeadFormat::Au(head)
            } else if CafHead::recognise(begins) {
                HeadFormat::Caf(CafHead::default())
            } else if SegmentReader::recognise(begins) {
                HeadFormat::Matroska(MatroskaHead::default())
            } else if begins.starts_with(b"fLaC") {
                HeadFormat::Flac(FlacHead::default())
            } else if begins.starts_with(b"OggS") {
                HeadFormat::Ogg(OggHead::default())
            } else if is_adts(begins) {
                HeadFormat::Adts
            } else if Mp4Head::recognise(begins) {
                HeadFormat::Mp4(Mp4Head::default())
            } else if let [b'I', b'D', b'3', _, _, flags, sizes @ .., _, _, _, _, _, _] = begins {
                // A tag of MP3, which some programs put before FLAC too.
                let bytes = sizes.iter().fold(0, |bytes, size| bytes << 7 | u64::from(size & 0x7f));
                let footer = if flags & 0x10 == 0 { 0 } else { 10 };
                input.skip(10 + bytes + footer);
                self.is_tagged = true;
                continue;
            } else {
                // MP3 may begin anywhere.
                self.begins = begins.to_vec();
                HeadFormat::Mp3(Mp3Head { is_tagged: self.is_tagged })
            };
        }
    }
}
