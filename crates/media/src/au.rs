//! The head of an AU file of Sun and NeXT, also of its form with the lowest byte first.

use crate::{MediaError, PcmSample, Track, input::Input};

/// The bytes of the numbers that a file begins with.
const HEAD_BYTES: u64 = 24;

/// Reads the head of a file.
#[derive(Clone, Debug)]
pub(crate) struct AuHead {
    is_big_endian: bool,
}

impl AuHead {
    /// Returns a reader if a file with these first bytes is one of AU.
    pub(crate) fn recognise(begins: &[u8]) -> Option<Self> {
        match begins.first_chunk()? {
            b".snd" => Some(Self { is_big_endian: true }),
            b"dns." => Some(Self { is_big_endian: false }),
            _ => None,
        }
    }

    /// Reads what is there; returns the track when all of the head was there.
    pub(crate) fn read(&self, input: &mut Input<'_, '_>) -> Result<Option<Track>, MediaError> {
        let Some(head) = input.peek(HEAD_BYTES, "its head")? else { return Ok(None) };
        let numbers = head.as_chunks::<4>().0.iter().map(|number| {
            let number = if self.is_big_endian { u32::from_be_bytes(*number) } else { u32::from_le_bytes(*number) };
            u64::from(number)
        });
        let [_, start, bytes, kind, rate, channels] =
            numbers.collect::<Vec<_>>().try_into().expect("24 bytes are six numbers");
        if start < HEAD_BYTES {
            return Err(input.malformed("the samples begin within the head"));
        }
        let sample = match kind {
            1 => Some(PcmSample::MuLaw),
            2..=5 => PcmSample::whole(u32::try_from(kind).expect("at most 5") - 1, self.is_big_endian),
            6 => PcmSample::float(4, self.is_big_endian),
            7 => PcmSample::float(8, self.is_big_endian),
            27 => Some(PcmSample::ALaw),
            _ => None,
        };
        let Some(sample) = sample else {
            return Err(MediaError::Unsupported { what: format!("samples of the encoding {kind} of AU") });
        };
        // A size that a recorder left open.
        let end = if bytes == u32::MAX.into() { u64::MAX } else { start + bytes };
        Track::of_samples(sample, (rate, channels), start..end, input).map(Some)
    }
}
