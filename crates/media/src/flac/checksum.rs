//! The two checksums of a packet.

use crate::checksum::CrcTables;

static CRC_8: CrcTables = CrcTables::new(0x07 << 24);
static CRC_16: CrcTables = CrcTables::new(0x8005 << 16);

/// Returns the CRC-8 (polynomial 0x07) of a header.
pub(super) fn crc8(bytes: &[u8]) -> u8 {
    CRC_8.of(&[bytes]).to_be_bytes()[0]
}

/// Returns the CRC-16 (polynomial 0x8005) of a packet.
pub(super) fn crc16(bytes: &[u8]) -> u16 {
    let [high, low, ..] = CRC_16.of(&[bytes]).to_be_bytes();
    u16::from_be_bytes([high, low])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_those_of_the_catalogue() {
        // CRC-8/SMBUS and CRC-16/UMTS (BUYPASS) of the catalogue's test text.
        assert_eq!(crc8(b"123456789"), 0xf4);
        assert_eq!(crc16(b"123456789"), 0xfee8);
        assert_eq!(crc16(b""), 0);
    }
}
