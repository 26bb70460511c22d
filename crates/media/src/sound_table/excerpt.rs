//! Excerpts of sounds: what decoding a segment takes, without the rest of the file.

use super::{SoundFacts, SoundSegment, SoundTable};
use crate::{
    packets::ExcerptBytes,
    video::{decode_number, encode_number},
};

/// The first bytes of an excerpt.
const MAGIC: &[u8; 8] = b"SPDLEXS\n";

/// A part of a sound, with what is known of the whole.
#[derive(Clone, Debug)]
pub(crate) struct SoundExcerpt<'b> {
    pub(crate) facts: SoundFacts,
    /// Where the part begins in the file.
    pub(crate) byte: u64,
    /// The decoded frames before the part.
    pub(crate) frame: u64,
    /// Whether the block of Vorbis before it is a long one.
    pub(crate) follows_long: bool,
    pub(crate) part: ExcerptBytes<'b>,
}

/// Makes an excerpt of a sound: what its table says of it, and the bytes of a segment, end to end, which `parts` are. It is for
/// [`Sound::open`](crate::Sound::open) in the same process, and is not kept.
#[must_use]
pub fn encode_sound_excerpt<B: AsRef<[u8]>>(
    table: &SoundTable<'_>,
    segment: &SoundSegment,
    parts: impl IntoIterator<Item = B>,
) -> Vec<u8> {
    let facts = table.facts.encode();
    let mut excerpt = MAGIC.to_vec();
    let lengths = &segment.lengths;
    let byte = segment.ranges.first().map_or(0, |range| range.start);
    for number in [facts.len() as u64, byte, segment.frame, segment.follows_long.into(), lengths.len() as u64] {
        encode_number(number, &mut excerpt);
    }
    excerpt.extend(facts);
    excerpt.extend(lengths.iter().flat_map(|length| length.to_le_bytes()));
    parts.into_iter().for_each(|part| excerpt.extend_from_slice(part.as_ref()));
    excerpt
}

impl<'b> SoundExcerpt<'b> {
    /// Returns what an excerpt holds; `None` if the bytes are none. The inner one is `None` if it is damaged.
    pub(crate) fn read(bytes: &'b [u8]) -> Option<Option<Self>> {
        Some(Self::read_content(bytes.strip_prefix(MAGIC)?))
    }

    fn read_content(mut bytes: &'b [u8]) -> Option<Self> {
        let mut number = || decode_number(&mut bytes);
        let (facts_bytes, byte, frame) = (number()?, number()?, number()?);
        let (follows_long, lengths) = (number()? != 0, usize::try_from(number()?).ok()?);
        let mut facts = bytes.split_off(..usize::try_from(facts_bytes).ok()?)?;
        let facts = SoundFacts::read(&mut facts).ok()?;
        let lengths = bytes.split_off(..lengths.checked_mul(4)?)?.as_chunks().0;
        Some(Self { facts, byte, frame, follows_long, part: ExcerptBytes { bytes, lengths } })
    }
}
