//! The two checksums of a packet.

/// CRC-16 with the polynomial 0x8005, eight bytes at a time: table `n` has the checksum of a byte with `n` zeros after it.
static TABLES_16: [[u16; 256]; 8] = tables_16();
static TABLE_8: [u8; 256] = table_8();

/// Returns the CRC-8 (polynomial 0x07) of a header.
pub(super) fn crc8(bytes: &[u8]) -> u8 {
    bytes.iter().fold(0, |crc, byte| TABLE_8[usize::from(crc ^ byte)])
}

/// Returns the CRC-16 of a packet.
pub(super) fn crc16(bytes: &[u8]) -> u16 {
    let (eights, rest) = bytes.as_chunks::<8>();
    let crc = eights.iter().fold(0, |crc: u16, eight| {
        let [high, low] = crc.to_be_bytes();
        let of = |table: usize, byte: u8| TABLES_16[table][usize::from(byte)];
        of(7, eight[0] ^ high)
            ^ of(6, eight[1] ^ low)
            ^ of(5, eight[2])
            ^ of(4, eight[3])
            ^ of(3, eight[4])
            ^ of(2, eight[5])
            ^ of(1, eight[6])
            ^ of(0, eight[7])
    });
    rest.iter().fold(crc, |crc, byte| {
        let [high, _] = crc.to_be_bytes();
        crc << 8 ^ TABLES_16[0][usize::from(high ^ byte)]
    })
}

#[expect(clippy::cast_possible_truncation, reason = "bytes are counted with a number of 16 bits")]
const fn tables_16() -> [[u16; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = (byte as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x8005 };
            bit += 1;
        }
        tables[0][byte] = crc;
        byte += 1;
    }
    let mut table = 1;
    while table < 8 {
        let mut byte = 0;
        while byte < 256 {
            let before = tables[table - 1][byte];
            tables[table][byte] = before << 8 ^ tables[0][(before >> 8) as usize];
            byte += 1;
        }
        table += 1;
    }
    tables
}

#[expect(clippy::cast_possible_truncation, reason = "bytes are counted with a number of 8 bits")]
const fn table_8() -> [u8; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x80 == 0 { crc << 1 } else { crc << 1 ^ 0x07 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
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
