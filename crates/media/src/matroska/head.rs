//! The head of a sound in Matroska: what comes before the packets.

use super::{
    ebml::ElementHead,
    segment::{CLUSTER, MAX_HEAD_BYTES, SEGMENT, TRACKS, WHAT, known},
    sound::SoundEntry,
};
use crate::{MediaError, SoundContainer, Track, input::Input};

/// More elements than come before the packets.
const MAX_ELEMENTS: u32 = 1 << 16;

/// Finds the description of the tracks.
#[derive(Clone, Debug, Default)]
pub(crate) struct MatroskaHead {
    elements: u32,
}

impl MatroskaHead {
    /// Reads what is there; returns the track when its description has been found.
    pub(crate) fn read(&mut self, input: &mut Input<'_, '_>) -> Result<Option<Track>, MediaError> {
        loop {
            let Some(head) = ElementHead::read(input, WHAT)? else { return Ok(None) };
            let bytes = match head.id {
                // The elements in it are passed one by one.
                SEGMENT => head.head_bytes,
                CLUSTER => return Err(input.malformed("packets come before their description")),
                _ => known(input, head)?,
            };
            if head.id == TRACKS {
                if bytes > MAX_HEAD_BYTES {
                    return Err(input.malformed("the head of the segment has more than 16 MiB"));
                }
                let Some(element) = input.peek(bytes, WHAT)? else { return Ok(None) };
                let content = &element[usize::try_from(head.head_bytes).expect("at most 12")..];
                let form = SoundEntry::first_of(content)?.form()?;
                return form.track(SoundContainer::Matroska, 0..input.file_bytes(), input.at()).map(Some);
            }
            self.elements += 1;
            if self.elements > MAX_ELEMENTS {
                return Err(input.malformed("more than 65,536 elements come before the description of the tracks"));
            }
            input.skip(bytes);
        }
    }
}
