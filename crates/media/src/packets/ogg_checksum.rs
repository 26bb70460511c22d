//! The checksum of a page of Ogg: CRC-32 with the polynomial 0x04c11db7, from 0 and not reflected.

use crate::checksum::CrcTables;

static CRC_32: CrcTables = CrcTables::new(0x04c1_1db7);

/// Returns the checksum of parts that follow one another.
pub(super) fn checksum(parts: &[&[u8]]) -> u32 {
    CRC_32.of(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_does_not_depend_on_how_bytes_are_cut() {
        let bytes: Vec<u8> = (0..=255).collect();
        let bitwise = bytes.iter().fold(0_u32, |crc, byte| {
            (0..8).fold(
                crc ^ u32::from(*byte) << 24,
                |crc, _| if crc >> 31 == 0 { crc << 1 } else { crc << 1 ^ 0x04c1_1db7 },
            )
        });
        for cut in 0..40 {
            assert_eq!(checksum(&[&bytes[..cut], &bytes[cut..]]), bitwise, "{cut}");
        }
    }
}
