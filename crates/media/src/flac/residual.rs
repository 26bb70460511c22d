//! The residual of a channel: what its prediction lacks.

use super::{bits::BitReader, problem::PacketProblem};

/// Reads the residuals of all frames but the first `order`, into the rest of `samples`.
pub(super) fn read(reader: &mut BitReader<'_>, order: usize, samples: &mut [i32]) -> Result<(), PacketProblem> {
    let parameter_bits = match reader.bits(2)? {
        0 => 4,
        1 => 5,
        _ => return Err(PacketProblem::Residual),
    };
    let parts = 1 << reader.bits(4)?;
    let part_frames = samples.len() / parts;
    if part_frames * parts != samples.len() || part_frames < order || part_frames == 0 {
        return Err(PacketProblem::Residual);
    }
    let escape = (1 << parameter_bits) - 1;
    let mut from = order;
    for part in 1..=parts {
        let part_samples = &mut samples[from..part * part_frames];
        from = part * part_frames;
        let parameter = reader.bits(parameter_bits)?;
        if parameter == escape {
            let bits = reader.bits(5)?;
            for sample in part_samples {
                *sample = reader.signed(bits)?;
            }
        } else {
            reader.rice(parameter, part_samples)?;
        }
    }
    Ok(())
}
