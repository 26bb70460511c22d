//! When the sound of a video file is heard.

use crate::{
    MediaError,
    matroska::{SegmentReader, SoundBlocks},
    mp4::{MovieReader, movie},
    packets::Mp4Sound,
};

/// The bytes that formats are recognised by.
const FIRST_BYTES: usize = 16;

/// Returns when the first frame is heard of the sound in an MP4, MOV, Matroska or WebM file in memory, which
/// [`Sound`](crate::Sound) opens: in nanoseconds from the beginning of the video, as frames of pictures are counted.
///
/// ```no_run
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let file = std::fs::read("clip.mkv")?;
/// let begin_nanos = spdl_media::sound_begin_nanos(&file)?;
/// let mut scratch = spdl_media::SoundScratch::default();
/// let sound = spdl_media::Sound::open(&file, &mut scratch)?;
/// println!("{} frames from {begin_nanos} ns on", sound.frames());
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// If the file is no video, has no sound, has sound of a codec that is not decoded, or is damaged.
pub fn sound_begin_nanos(file: &[u8]) -> Result<i64, MediaError> {
    let begins = &file[..file.len().min(FIRST_BYTES)];
    if SegmentReader::recognise(begins) {
        let blocks = SoundBlocks::read(file)?;
        blocks.begin_nanos(file, &blocks.entry.form()?)
    } else if MovieReader::recognise(begins) {
        let (moov, byte) = movie(file)?;
        Ok(Mp4Sound::read(moov, file, byte)?.begin_nanos)
    } else {
        Err(MediaError::NotVideo { begins: begins.escape_ascii().to_string() })
    }
}
