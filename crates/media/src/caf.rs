//! The head of a CAF file, as Apple's Core Audio Format Specification 1.0 has it, of samples that are not coded.

use crate::{
    MediaError, PcmSample, Track,
    input::{Input, big_endian},
    track::whole_hertz,
};

/// More chunks before the samples than any program writes.
const MAX_CHUNKS: u32 = 4096;
/// The bytes before the content of a chunk: a name and a size.
const HEADER_BYTES: u64 = 4 + 8;
/// The bytes of the description of the samples.
const DESCRIPTION_BYTES: u64 = 32;
/// The bytes of the chunk `data` before its samples, which count its changes.
const EDITS_BYTES: u64 = 4;
/// Flags of samples that are not coded.
const FLOAT: u64 = 1;
const LITTLE_ENDIAN: u64 = 2;

/// Reads the chunks of a file up to its samples.
#[derive(Clone, Debug, Default)]
pub(crate) struct CafHead {
    chunks: u32,
    format: Option<CafFormat>,
}

#[derive(Clone, Copy, Debug)]
struct CafFormat {
    sample: PcmSample,
    rate: u64,
    channels: u64,
}

impl CafHead {
    /// Returns whether a file with these first bytes is one of CAF.
    pub(crate) fn recognise(begins: &[u8]) -> bool {
        begins.starts_with(b"caff\0\x01")
    }

    /// Reads what is there; returns the track when its samples have been found.
    pub(crate) fn read(&mut self, input: &mut Input<'_, '_>) -> Result<Option<Track>, MediaError> {
        if self.chunks == 0 {
            input.skip(8);
            self.chunks = 1;
        }
        loop {
            let Some(header) = input.peek(HEADER_BYTES, "its chunks: none has samples")? else { return Ok(None) };
            let size = big_endian(&header[4..]);
            match &header[..4] {
                b"desc" => {
                    let bytes = HEADER_BYTES + DESCRIPTION_BYTES;
                    let Some(chunk) = input.peek(bytes, "its chunk `desc`")? else { return Ok(None) };
                    self.format = Some(CafFormat::read(&chunk[12..])?);
                }
                b"data" => {
                    let Some(CafFormat { sample, rate, channels }) = self.format else {
                        return Err(input.malformed("the samples come before the chunk `desc`"));
                    };
                    let start = input.at() + HEADER_BYTES;
                    // A size of -1, which a recorder leaves open, is more than any file has.
                    let data = start + EDITS_BYTES..start.saturating_add(size).max(start + EDITS_BYTES);
                    return Track::of_samples(sample, (rate, channels), data, input).map(Some);
                }
                _ => {}
            }
            self.chunks += 1;
            if self.chunks > MAX_CHUNKS {
                return Err(input.malformed("more than 4,096 chunks come before the samples"));
            }
            input.skip(HEADER_BYTES.saturating_add(size));
        }
    }
}

impl CafFormat {
    /// Reads the chunk `desc`.
    fn read(chunk: &[u8]) -> Result<Self, MediaError> {
        let (rate, kind) = (f64::from_bits(big_endian(&chunk[..8])), &chunk[8..12]);
        let number = |at: usize| big_endian(&chunk[at..at + 4]);
        let (flags, packet_bytes, channels, bits) = (number(12), number(16), number(24), number(28));
        // Samples of 12 or 20 bits lie in the upper bits of 2 or 3 bytes.
        let width = u32::try_from(bits.div_ceil(8)).unwrap_or_default();
        let is_big_endian = flags & LITTLE_ENDIAN == 0;
        let sample = match kind {
            b"lpcm" if packet_bytes != channels * u64::from(width) => None,
            b"lpcm" if flags & FLOAT != 0 => PcmSample::float(width, is_big_endian),
            b"lpcm" => PcmSample::whole(width, is_big_endian),
            b"ulaw" => Some(PcmSample::MuLaw),
            b"alaw" => Some(PcmSample::ALaw),
            _ => None,
        };
        let Some(sample) = sample else {
            let what = format!("samples of {bits} bits in the format `{}` of CAF", kind.escape_ascii());
            return Err(MediaError::Unsupported { what });
        };
        Ok(Self { sample, rate: whole_hertz(rate).into(), channels })
    }
}
