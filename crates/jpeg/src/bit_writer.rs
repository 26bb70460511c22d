//! The bits of a scan, as they are written.

/// Writes the bits of a scan.
pub(crate) struct BitWriter {
    pub(crate) out: Vec<u8>,
    reservoir: u64,
    count: u32,
}

impl BitWriter {
    /// Creates a writer that appends to `out`.
    pub(crate) fn new(out: Vec<u8>) -> Self {
        Self { out, reservoir: 0, count: 0 }
    }

    /// Writes the lowest `count` bits of `bits`, at most 32.
    pub(crate) fn put(&mut self, bits: u32, count: u32) {
        self.reservoir = self.reservoir << count | u64::from(bits) & ((1 << count) - 1);
        self.count += count;
        while self.count >= 8 {
            self.count -= 8;
            let byte = (self.reservoir >> self.count) as u8;
            self.out.push(byte);
            if byte == 0xff {
                self.out.push(0);
            }
        }
    }

    pub(crate) fn align(&mut self) {
        self.put(!0, (8 - self.count) % 8);
    }
}
