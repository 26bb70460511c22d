//! The head of an AIFF or AIFC file, as Apple's specifications of 1989 and 1991 have it, with the compression types that `libsndfile` reads
//! of samples that are not coded.

use std::ops::Range;

use crate::{
    MediaError, PcmSample, Track,
    input::{Input, big_endian},
};

/// More chunks than any program writes.
const MAX_CHUNKS: u32 = 4096;
/// The bytes before the content of a chunk: a name and a size.
const HEADER_BYTES: u64 = 8;
/// The bytes of the chunk `SSND` before its samples: where these begin, and a size of blocks.
const OFFSET_BYTES: u64 = 8;

/// Reads the chunks of a file until its samples and what they are have been found, whichever comes first.
#[derive(Clone, Debug)]
pub(crate) struct AiffHead {
    /// Whether it is AIFC, whose samples may be of other forms.
    is_compressed: bool,
    chunks: u32,
    format: Option<AiffFormat>,
    data: Option<Range<u64>>,
}

#[derive(Clone, Copy, Debug)]
struct AiffFormat {
    sample: PcmSample,
    rate: u64,
    channels: u64,
}

impl AiffHead {
    /// Returns a reader if a file with these first bytes is one of AIFF.
    pub(crate) fn recognise(begins: &[u8]) -> Option<Self> {
        let is_compressed = match begins {
            [b'F', b'O', b'R', b'M', _, _, _, _, b'A', b'I', b'F', b'F', ..] => false,
            [b'F', b'O', b'R', b'M', _, _, _, _, b'A', b'I', b'F', b'C', ..] => true,
            _ => return None,
        };
        Some(Self { is_compressed, chunks: 0, format: None, data: None })
    }

    /// Reads what is there; returns the track when its samples have been found.
    pub(crate) fn read(&mut self, input: &mut Input<'_, '_>) -> Result<Option<Track>, MediaError> {
        if self.chunks == 0 {
            input.skip(12);
            self.chunks = 1;
        }
        loop {
            let Some(header) = input.peek(HEADER_BYTES, "its chunks: none has samples")? else { return Ok(None) };
            let (name, size) = (&header[..4], big_endian(&header[4..]));
            match name {
                b"COMM" => {
                    let Some(chunk) = input.peek(HEADER_BYTES + size.min(22), "its chunk `COMM`")? else {
                        return Ok(None);
                    };
                    self.format = Some(AiffFormat::read(&chunk[8..], self.is_compressed, input)?);
                }
                b"SSND" => {
                    let bytes = HEADER_BYTES + OFFSET_BYTES;
                    let Some(chunk) = input.peek(bytes, "its chunk `SSND`")? else { return Ok(None) };
                    let begin = input.at() + bytes + big_endian(&chunk[8..12]);
                    // A size that a recorder left open.
                    let end = if size < OFFSET_BYTES { u64::MAX } else { input.at() + HEADER_BYTES + size };
                    self.data = Some(begin..end.max(begin));
                }
                _ => {}
            }
            if let (Some(AiffFormat { sample, rate, channels }), Some(data)) = (self.format, &self.data) {
                return Track::of_samples(sample, (rate, channels), data.clone(), input).map(Some);
            }
            self.chunks += 1;
            if self.chunks > MAX_CHUNKS {
                return Err(input.malformed("more than 4,096 chunks come before the samples"));
            }
            input.skip(HEADER_BYTES + size.next_multiple_of(2));
        }
    }
}

impl AiffFormat {
    /// Reads the chunk `COMM`.
    fn read(chunk: &[u8], is_compressed: bool, input: &Input<'_, '_>) -> Result<Self, MediaError> {
        let (Some(numbers), Some(rate)) = (chunk.first_chunk::<8>(), chunk.get(8..18)) else {
            return Err(input.malformed("the chunk `COMM` has fewer than 18 bytes"));
        };
        let (channels, bits) = (big_endian(&numbers[..2]), big_endian(&numbers[6..]));
        let kind = match (is_compressed, chunk.get(18..22)) {
            (false, _) => b"NONE",
            (true, Some(kind)) => kind,
            (true, None) => return Err(input.malformed("the chunk `COMM` does not say how samples are stored")),
        };
        // Samples of 12 or 20 bits lie in the upper bits of 2 or 3 bytes.
        let bytes = u32::try_from(bits.div_ceil(8)).unwrap_or_default();
        let sample = match kind {
            b"NONE" | b"twos" => PcmSample::whole(bytes, true),
            b"sowt" => PcmSample::whole(bytes, false),
            b"in24" => Some(PcmSample::I24Be),
            b"in32" => Some(PcmSample::I32Be),
            b"42ni" => Some(PcmSample::I24),
            b"23ni" => Some(PcmSample::I32),
            b"fl32" | b"FL32" => Some(PcmSample::F32Be),
            b"fl64" | b"FL64" => Some(PcmSample::F64Be),
            b"raw " => Some(PcmSample::U8),
            b"ulaw" | b"ULAW" => Some(PcmSample::MuLaw),
            b"alaw" | b"ALAW" => Some(PcmSample::ALaw),
            _ => None,
        };
        let Some(sample) = sample else {
            let what = format!("samples of {bits} bits in the format `{}` of AIFF", kind.escape_ascii());
            return Err(MediaError::Unsupported { what });
        };
        Ok(Self { sample, rate: extended(rate), channels })
    }
}

/// Returns the nearest whole number of one of 80 bits with a floating point: a sign, 15 bits of exponent and 64 of mantissa. 0 if it is
/// negative, less than a half, or has more than 63 bits.
fn extended(bytes: &[u8]) -> u64 {
    let (exponent, mantissa) = (big_endian(&bytes[..2]), big_endian(&bytes[2..]));
    // The mantissa is a number below 2 with 63 bits behind the point, and 16,383 is the exponent of 1.
    let Some(shift) = (16_383 + 63_u64).checked_sub(exponent).filter(|shift| (1..=64).contains(shift)) else {
        return 0;
    };
    let half = mantissa >> (shift - 1) & 1;
    mantissa.checked_shr(u32::try_from(shift).expect("at most 64")).unwrap_or_default() + half
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_the_nearest_whole_numbers() {
        for (bytes, rate) in [
            ([0x40, 0x0e, 0xac, 0x44, 0, 0, 0, 0, 0, 0], 44_100),
            ([0x40, 0x0c, 0xfa, 0, 0, 0, 0, 0, 0, 0], 16_000),
            // 22,254.545 of old machines.
            ([0x40, 0x0d, 0xad, 0xdd, 0x17, 0x45, 0xd1, 0x74, 0x5d, 0x17], 22_255),
            ([0x3f, 0xff, 0x80, 0, 0, 0, 0, 0, 0, 0], 1),
            ([0x3f, 0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0], 1),
            ([0x3f, 0xfd, 0x80, 0, 0, 0, 0, 0, 0, 0], 0),
            ([0xc0, 0x0e, 0xac, 0x44, 0, 0, 0, 0, 0, 0], 0),
            ([0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff], 0),
            ([0; 10], 0),
        ] {
            assert_eq!(extended(&bytes), rate, "{bytes:?}");
        }
    }
}
