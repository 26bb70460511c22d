//! The checksum of a page of Ogg: CRC-32 with the polynomial 0x04c11db7, from 0 and not reflected.

/// Table `n` has the checksum of a byte with `n` zeros after it.
static TABLES: [[u32; 256]; 8] = tables();

/// Returns the checksum of parts that follow one another.
pub(super) fn checksum(parts: &[&[u8]]) -> u32 {
    parts.iter().fold(0, |crc, part| {
        let (eights, rest) = part.as_chunks::<8>();
        let crc = eights.iter().fold(crc, |crc: u32, eight| {
            let [a, b, c, d] = crc.to_be_bytes();
            let of = |table: usize, byte: u8| TABLES[table][usize::from(byte)];
            of(7, eight[0] ^ a)
                ^ of(6, eight[1] ^ b)
                ^ of(5, eight[2] ^ c)
                ^ of(4, eight[3] ^ d)
                ^ of(3, eight[4])
                ^ of(2, eight[5])
                ^ of(1, eight[6])
                ^ of(0, eight[7])
        });
        rest.iter().fold(crc, |crc, byte| crc << 8 ^ TABLES[0][usize::from(crc.to_be_bytes()[0] ^ byte)])
    })
}

#[expect(clippy::cast_possible_truncation, reason = "bytes are counted with a number of 32 bits")]
const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = (byte as u32) << 24;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc >> 31 == 0 { crc << 1 } else { crc << 1 ^ 0x04c1_1db7 };
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
            tables[table][byte] = before << 8 ^ tables[0][(before >> 24) as usize];
            byte += 1;
        }
        table += 1;
    }
    tables
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
