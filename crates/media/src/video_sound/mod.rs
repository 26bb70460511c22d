//! The sound of a video file, as a sound file of its own: so what decodes sounds need not know where videos have them.

mod matroska;
mod mp4;
mod rewrite;

use std::borrow::Cow;

use crate::{MediaError, matroska::SegmentReader, mp4::MovieReader};

/// The bytes that formats are recognised by.
const FIRST_BYTES: usize = 16;
const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// The first track of sound of a video file in memory.
///
/// ```no_run
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let file = std::fs::read("clip.mkv")?;
/// let video = spdl_media::VideoSound::open(&file)?;
/// let mut scratch = spdl_media::SoundScratch::default();
/// let sound = spdl_media::Sound::open(&video.file, &mut scratch)?;
/// println!("{} frames from {} ns on", sound.frames(), video.begin_nanos);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VideoSound<'b> {
    /// A file that [`Sound`](crate::Sound) opens: the video itself if it is an MP4 with AAC or Opus, or else the packets of the track in a
    /// container of sounds. Their bytes are the same.
    pub file: Cow<'b, [u8]>,
    /// When its first frame is heard, in nanoseconds from the beginning of the video, as frames of pictures are counted.
    pub begin_nanos: i64,
}

impl<'b> VideoSound<'b> {
    /// Reads the tables of an MP4 or MOV file, or the blocks of a Matroska or WebM file.
    ///
    /// # Errors
    /// If the file is no video, has no sound, has sound of a codec that is not decoded, or is damaged.
    pub fn open(file: &'b [u8]) -> Result<Self, MediaError> {
        let begins = &file[..file.len().min(FIRST_BYTES)];
        if Self::is_matroska(file) {
            matroska::open(file)
        } else if MovieReader::recognise(begins) {
            mp4::open(file)
        } else {
            Err(MediaError::NotVideo { begins: begins.escape_ascii().to_string() })
        }
    }

    /// Returns whether a file with these first bytes is one of Matroska or WebM, which [`Sound`](crate::Sound) does not open.
    #[must_use]
    pub fn is_matroska(begins: &[u8]) -> bool {
        SegmentReader::recognise(begins)
    }
}
