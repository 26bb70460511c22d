//! The length of a sound, by the beginning of its file.

use spdl_media::{HeadReader, Sound, SoundScratch, SoundTable, Track};

/// Returns the milliseconds of a sound file of `file_bytes` that begins with these bytes; `None` if these do not tell, and are not all.
///
/// # Errors
/// What is wrong with the file, to follow the name of its field.
pub(super) fn milliseconds_of_track(bytes: &[u8], file_bytes: u64) -> Result<Option<u64>, String> {
    let is_whole = bytes.len() as u64 == file_bytes;
    let Some(track) = track_of(bytes, file_bytes)? else { return Ok(None) };
    match track.frames {
        Some(frames) => Ok(Some(milliseconds(frames, track.rate))),
        None if !is_whole => Ok(None),
        None => {
            let sound = Sound::open(bytes, &mut SoundScratch::default()).map_err(|error| error.to_string())?;
            Ok(Some(milliseconds(sound.frames(), track.rate)))
        }
    }
}

/// Returns the milliseconds of a sound that has a table in the index of its shard.
///
/// # Errors
/// If the table is damaged.
pub(super) fn milliseconds_of_table(table: &[u8]) -> Result<u64, String> {
    let table = SoundTable::read(table).map_err(|error| error.to_string())?;
    Ok(milliseconds(table.frames(), table.track().rate))
}

/// Reads the head of a file; `None` if it goes on behind these bytes.
fn track_of(bytes: &[u8], file_bytes: u64) -> Result<Option<Track>, String> {
    let mut reader = HeadReader::new(file_bytes);
    loop {
        let wanted = reader.wants();
        let place = usize::try_from(wanted.start).ok().zip(usize::try_from(wanted.end).ok());
        let Some(part) = place.and_then(|(start, end)| bytes.get(start..end)) else { return Ok(None) };
        if let Some(track) = reader.read(part).map_err(|error| error.to_string())? {
            return Ok(Some(track));
        }
    }
}

/// Returns how long these frames are, rounded.
fn milliseconds(frames: u64, rate: u32) -> u64 {
    let rate = u128::from(rate.max(1));
    u64::try_from((u128::from(frames) * 1000 + rate / 2) / rate).unwrap_or(u64::MAX)
}
