//! Cyclic checksums of 8 to 32 bits, as FLAC and Ogg have them: the most significant bit of a byte comes first, and they begin with 0.

/// Computes checksums with one polynomial, eight bytes at a time.
pub(crate) struct CrcTables {
    /// Table `n` has the checksum of a byte with `n` zeros after it.
    tables: [[u32; 256]; 8],
}

impl CrcTables {
    /// Makes the tables. Checksums of fewer than 32 bits have theirs, and those of their polynomial, at the top.
    #[expect(clippy::cast_possible_truncation, reason = "bytes are counted with a number of 32 bits")]
    pub(crate) const fn new(polynomial: u32) -> Self {
        let mut tables = [[0; 256]; 8];
        let mut byte = 0;
        while byte < 256 {
            let mut crc = (byte as u32) << 24;
            let mut bit = 0;
            while bit < 8 {
                crc = if crc >> 31 == 0 { crc << 1 } else { crc << 1 ^ polynomial };
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
        Self { tables }
    }

    /// Returns the checksum of parts that follow one another.
    pub(crate) fn of(&self, parts: &[&[u8]]) -> u32 {
        let of = |table: usize, byte: u8| self.tables[table][usize::from(byte)];
        parts.iter().fold(0, |crc, part| {
            let (eights, rest) = part.as_chunks::<8>();
            let crc = eights.iter().fold(crc, |crc: u32, eight| {
                let [a, b, c, d] = crc.to_be_bytes();
                of(7, eight[0] ^ a)
                    ^ of(6, eight[1] ^ b)
                    ^ of(5, eight[2] ^ c)
                    ^ of(4, eight[3] ^ d)
                    ^ of(3, eight[4])
                    ^ of(2, eight[5])
                    ^ of(1, eight[6])
                    ^ of(0, eight[7])
            });
            rest.iter().fold(crc, |crc, byte| crc << 8 ^ of(0, crc.to_be_bytes()[0] ^ byte))
        })
    }
}
