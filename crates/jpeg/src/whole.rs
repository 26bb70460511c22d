//! Checks that a sequential scan has all its blocks. A picture without an end marker has to pass this check, because
//! decoders fill up what is cut off.

use crate::huffman::{CodeEntry, END_OF_BLOCK, HuffmanSpec, LAST, Lookup};

/// A scan: its data, and the headers and tables that describe it.
#[derive(Clone, Debug, Default)]
pub(crate) struct ScanFacts<'b> {
    /// The body of the frame's segment.
    pub(crate) frame: &'b [u8],
    /// The bodies of the segments with Huffman tables.
    pub(crate) tables: Vec<&'b [u8]>,
    /// MCUs between restart markers; 0 for none.
    pub(crate) restart_interval: u64,
    /// The body of the scan's segment.
    pub(crate) scan: &'b [u8],
    pub(crate) data: &'b [u8],
}

/// The bits of a scan; the next one is the topmost.
struct ScanBits<'b> {
    data: &'b [u8],
    reservoir: u64,
    count: u32,
}

impl ScanBits<'_> {
    /// Skips a code and its value; returns `None` when the data has fewer bits.
    fn pass(&mut self, table: &Lookup) -> Option<CodeEntry> {
        while self.count <= 48 {
            let byte = match *self.data {
                [0xff, 0, ..] => {
                    self.data = &self.data[1..];
                    0xff
                }
                [0xff, ..] | [] => break,
                [byte, ..] => byte,
            };
            self.data = &self.data[1..];
            self.reservoir |= u64::from(byte) << (56 - self.count);
            self.count += 8;
        }
        let entry = table.find(self.reservoir);
        self.count = self.count.checked_sub(entry.bits())?;
        self.reservoir <<= entry.bits();
        Some(entry)
    }

    fn pass_block(&mut self, [dc, ac]: &[Lookup; 2]) -> Option<()> {
        (self.pass(dc)?.ahead() == 1).then_some(())?;
        let mut at = 0;
        while at < LAST {
            match self.pass(ac)?.ahead() {
                END_OF_BLOCK => return Some(()),
                ahead => at += ahead,
            }
        }
        (at == LAST).then_some(())
    }

    /// Skips the rest of a byte and the restart marker after it.
    fn pass_restart(&mut self) -> Option<()> {
        while !matches!(self.data, [0xff, 0xd0..=0xd7, ..]) {
            self.data = self.data.get(1..)?;
        }
        (self.data, self.reservoir, self.count) = (&self.data[2..], 0, 0);
        Some(())
    }
}

impl ScanFacts<'_> {
    /// Returns whether the data has all blocks of the scan.
    pub(crate) fn is_whole(&self) -> bool {
        self.pass_all().is_some()
    }

    fn pass_all(&self) -> Option<()> {
        let &[_, h1, h0, w1, w0, _] = self.frame.first_chunk::<6>()?;
        let size = [[w1, w0], [h1, h0]].map(|side| u64::from(u16::from_be_bytes(side)));
        let all = self.frame[6..].as_chunks::<3>().0;
        let sampling =
            |component: &[u8; 3]| [component[1] >> 4, component[1] & 15].map(|blocks| u64::from(blocks.max(1)));
        let most = all.iter().map(sampling).fold([1, 1], |a, b| [a[0].max(b[0]), a[1].max(b[1])]);
        let selectors = self.scan.get(1..1 + 2 * usize::from(*self.scan.first()?))?.as_chunks::<2>().0;
        // For each component of the scan, its blocks in an MCU and its tables.
        let mut parts = Vec::new();
        for [id, tables] in selectors {
            let [across, down] = sampling(all.iter().find(|component| component[0] == *id)?);
            let tables =
                [Lookup::dc(self.table(tables >> 4)?).ok()?, Lookup::ac(self.table(0x10 | tables & 15)?).ok()?];
            parts.push(([across, down], tables));
        }
        let mcus: u64 = match &mut parts[..] {
            // A scan of one component has MCUs of a single block.
            [(blocks, _)] => {
                let of = |axis: usize| (size[axis] * blocks[axis]).div_ceil(most[axis]).div_ceil(8);
                let count = of(0) * of(1);
                *blocks = [1, 1];
                count
            }
            _ => [0, 1].map(|axis| size[axis].div_ceil(8 * most[axis])).iter().product(),
        };
        let mut bits = ScanBits { data: self.data, reservoir: 0, count: 0 };
        for mcu in 0..mcus {
            if self.restart_interval > 0 && mcu > 0 && mcu.is_multiple_of(self.restart_interval) {
                bits.pass_restart()?;
            }
            for ([across, down], tables) in &parts {
                (0..across * down).try_for_each(|_| bits.pass_block(tables))?;
            }
        }
        Some(())
    }

    /// Returns the last table of the file for `place`, a class and a number.
    fn table(&self, place: u8) -> Option<HuffmanSpec<'_>> {
        let mut found = None;
        for mut body in self.tables.iter().copied() {
            while let Some((&at, rest)) = body.split_first() {
                let counts = rest.first_chunk::<16>()?;
                let symbols = rest[16..].get(..counts.iter().map(|count| usize::from(*count)).sum())?;
                if at == place {
                    found = Some(HuffmanSpec { counts, symbols });
                }
                body = &rest[16 + symbols.len()..];
            }
        }
        found
    }
}
