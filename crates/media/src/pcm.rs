//! PCM samples as `f32`, with the values that `libsndfile` gives them.

use crate::PcmSample;

/// The samples of A-law and mu-law, from -32,768 to 32,767.
static A_LAW: [i16; 256] = a_law();
static MU_LAW: [i16; 256] = mu_law();

/// Appends the samples of whole frames.
#[expect(clippy::cast_precision_loss, reason = "an integer of 32 bits becomes the nearest f32, as everywhere")]
#[expect(clippy::cast_possible_truncation, reason = "an f64 becomes the nearest f32")]
pub(crate) fn read(sample: PcmSample, bytes: &[u8], samples: &mut Vec<f32>) {
    const HALF: f32 = 1.0 / 32_768.0;
    const FULL: f32 = 1.0 / 2_147_483_648.0;
    match sample {
        PcmSample::U8 => samples.extend(bytes.iter().map(|byte| (f32::from(*byte) - 128.0) * (1.0 / 128.0))),
        PcmSample::I16 => {
            samples.extend(chunks(bytes).map(|sample| f32::from(i16::from_le_bytes(sample)) * HALF));
        }
        PcmSample::I24 => samples.extend(chunks(bytes).map(|[low, middle, high]| {
            let sample = i32::from_le_bytes([0, low, middle, high]);
            sample as f32 * FULL
        })),
        PcmSample::I32 => samples.extend(chunks(bytes).map(|sample| i32::from_le_bytes(sample) as f32 * FULL)),
        PcmSample::F32 => samples.extend(chunks(bytes).map(f32::from_le_bytes)),
        PcmSample::F64 => samples.extend(chunks(bytes).map(|sample| f64::from_le_bytes(sample) as f32)),
        PcmSample::I8 => samples.extend(bytes.iter().map(|byte| f32::from(byte.cast_signed()) * (1.0 / 128.0))),
        PcmSample::I16Be => {
            samples.extend(chunks(bytes).map(|sample| f32::from(i16::from_be_bytes(sample)) * HALF));
        }
        PcmSample::I24Be => samples.extend(chunks(bytes).map(|[high, middle, low]| {
            let sample = i32::from_be_bytes([high, middle, low, 0]);
            sample as f32 * FULL
        })),
        PcmSample::I32Be => samples.extend(chunks(bytes).map(|sample| i32::from_be_bytes(sample) as f32 * FULL)),
        PcmSample::F32Be => samples.extend(chunks(bytes).map(f32::from_be_bytes)),
        PcmSample::F64Be => samples.extend(chunks(bytes).map(|sample| f64::from_be_bytes(sample) as f32)),
        PcmSample::ALaw => samples.extend(bytes.iter().map(|byte| f32::from(A_LAW[usize::from(*byte)]) * HALF)),
        PcmSample::MuLaw => samples.extend(bytes.iter().map(|byte| f32::from(MU_LAW[usize::from(*byte)]) * HALF)),
    }
}

fn chunks<const N: usize>(bytes: &[u8]) -> impl ExactSizeIterator<Item = [u8; N]> {
    bytes.as_chunks().0.iter().copied()
}

/// ITU-T G.711, table 1: a sign, three bits of exponent and four of mantissa, with every second bit inverted.
#[expect(clippy::cast_possible_truncation, reason = "codes have 8 bits, and values 16")]
const fn a_law() -> [i16; 256] {
    let mut table = [0; 256];
    let mut code = 0;
    while code < 256 {
        let bits = code as u8 ^ 0x55;
        let (exponent, mantissa) = ((bits >> 4) & 7, (bits & 15) as i32);
        let size = match exponent {
            0 => (mantissa << 4) + 8,
            _ => ((mantissa << 4) + 0x108) << (exponent - 1),
        };
        let value = if bits & 0x80 == 0 { -size } else { size };
        table[code] = value as i16;
        code += 1;
    }
    table
}

/// ITU-T G.711, table 2: the same with all bits inverted, and a bias of 33 steps.
#[expect(clippy::cast_possible_truncation, reason = "codes have 8 bits, and values 16")]
const fn mu_law() -> [i16; 256] {
    let mut table = [0; 256];
    let mut code = 0;
    while code < 256 {
        let bits = !(code as u8);
        let (exponent, mantissa) = ((bits >> 4) & 7, (bits & 15) as i32);
        let size = (((mantissa << 3) + 0x84) << exponent) - 0x84;
        let value = if bits & 0x80 == 0 { size } else { -size };
        table[code] = value as i16;
        code += 1;
    }
    table
}
