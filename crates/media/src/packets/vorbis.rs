//! Vorbis, as its specification has it: the blocks of packets, whose lengths the setup tells. All but lengths is passed.

use super::PacketPlan;
use crate::MediaError;

/// The lengths of blocks, from which those of packets follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct VorbisBlocks {
    /// Frames of a short and of a long block.
    pub(crate) sizes: [u32; 2],
    /// Bit `n` says whether blocks of mode `n` are long.
    long_modes: u64,
    modes: u32,
    /// The block before the next packet.
    previous: Option<u32>,
    /// Whether Symphonia's decoder would make wrong samples.
    pub(crate) is_misread: bool,
}

/// The most values that a setup may ask a decoder to make tables of: 4 MiB of numbers. Encoders have a tenth.
const MAX_VALUES: u64 = 1 << 20;

/// Bits from the least significant one of each byte on.
struct SetupBits<'b> {
    bytes: &'b [u8],
    at: u64,
}

/// The steps that couple channels.
struct Couplings {
    /// Their first bit.
    at: u64,
    steps: u32,
    step_bits: u32,
}

impl VorbisBlocks {
    /// Reads the first and the third packet of a stream; and puts the couplings of the third into the order that the decoder needs.
    pub(crate) fn read(identification: &[u8], packet: &mut [u8]) -> Result<Self, &'static str> {
        let channels = *identification.get(11).ok_or("the head of Vorbis is too short")?;
        let sizes = *identification.get(28).ok_or("the head of Vorbis is too short")?;
        let (short, long) = (sizes & 15, sizes >> 4);
        if !(6..=13).contains(&short) || !(short..=13).contains(&long) {
            return Err("the head of Vorbis has blocks of unknown lengths");
        }
        if !packet.starts_with(b"\x05vorbis") {
            return Err("the third packet is no setup of Vorbis");
        }
        let sizes = [1 << short, 1 << long];
        let setup = VorbisSetup::read(&mut SetupBits { bytes: packet, at: 7 * 8 }, channels);
        let setup = setup.ok_or("the setup of Vorbis is not valid")?;
        setup.mappings.iter().filter_map(|mapping| mapping.couplings.as_ref()).for_each(|steps| steps.reverse(packet));
        let is_misread = setup.is_misread(sizes);
        Ok(Self { sizes, long_modes: setup.long_modes, modes: setup.modes, previous: None, is_misread })
    }

    /// Reads the same of a sound that is decoded.
    ///
    /// # Errors
    /// If they are not valid, or Symphonia's decoder would make wrong samples.
    pub(super) fn read_whole(identification: &[u8], packet: &mut [u8]) -> Result<Self, MediaError> {
        let blocks = Self::read(identification, packet);
        let blocks = blocks.map_err(|problem| MediaError::Malformed { byte: 0, problem })?;
        if blocks.is_misread {
            let what = "Vorbis with several channels that are not coupled".to_owned();
            return Err(MediaError::Unsupported { what });
        }
        Ok(blocks)
    }

    /// Returns how packets are decoded: that of a frame, and the packet before it.
    pub(super) fn plan(&self) -> PacketPlan {
        PacketPlan { roll: u64::from(self.sizes[1] / 2), restart: None }
    }

    /// Returns what is known of the blocks, as numbers, but for the block before the next packet.
    pub(super) fn numbers(&self) -> [u64; 4] {
        [self.sizes[0].into(), self.sizes[1].into(), self.modes.into(), self.long_modes]
    }

    /// Returns the blocks of which these are the numbers; `None` if there are none.
    pub(super) fn of_numbers([short, long, modes, long_modes]: [u64; 4]) -> Option<Self> {
        let [short, long, modes] = [short, long, modes].map(|number| u32::try_from(number).ok());
        let (sizes, modes) = ([short?, long?], modes.filter(|modes| (1..=64).contains(modes))?);
        let are_sizes = sizes[0] <= sizes[1] && sizes.iter().all(|size| (1 << 6..=1 << 13).contains(size));
        are_sizes.then_some(Self { sizes, long_modes, modes, previous: None, is_misread: false })
    }

    /// Returns whether the block before the next packet is a long one.
    pub(super) fn follows_long(&self) -> bool {
        self.previous == Some(self.sizes[1])
    }

    /// Returns the same behind a short or a long block.
    pub(super) const fn behind(self, is_long: bool) -> Self {
        Self { previous: Some(self.sizes[is_long as usize]), ..self }
    }

    /// Returns the number of frames that are decoded of the next packet; `None` if it is no sound.
    pub(crate) fn frames(&mut self, packet: &[u8]) -> Result<Option<u32>, &'static str> {
        let mut bits = SetupBits { bytes: packet, at: 0 };
        let Some(0) = bits.read(1) else { return Ok(None) };
        let mode = bits.read(bits_of(self.modes - 1)).filter(|mode| *mode < self.modes);
        let mode = mode.ok_or("a packet of Vorbis has an unknown mode")?;
        let block = self.sizes[usize::from(self.long_modes >> mode & 1 == 1)];
        let previous = self.previous.replace(block);
        Ok(Some(previous.map_or(0, |previous| previous / 4 + block / 4)))
    }
}

/// Returns the rate and the channels of a stream, of its first packet.
pub(super) fn rate_and_channels(identification: &[u8]) -> Result<(u32, u16), &'static str> {
    match identification {
        [1, b'v', b'o', b'r', b'b', b'i', b's', _, _, _, _, channels, rate @ ..] if *channels > 0 => {
            let rate = rate.first_chunk().map_or(0, |rate| u32::from_le_bytes(*rate));
            if rate == 0 { Err(NO_RATE) } else { Ok((rate, u16::from(*channels))) }
        }
        _ => Err(NO_RATE),
    }
}

const NO_RATE: &str = "the head of Vorbis has no sample rate or no channels";

/// Returns the bits that a number takes.
const fn bits_of(number: u32) -> u32 {
    u32::BITS - number.leading_zeros()
}

impl Couplings {
    /// Reverses the order of the steps. They are undone from the last to the first, as the specification has it in section 4.3.5, but
    /// Symphonia's decoder goes the other way, which differs from three channels on, where two steps may share one.
    fn reverse(&self, packet: &mut [u8]) {
        let (mut first, mut last) = (0, self.steps.saturating_sub(1));
        while first < last {
            for bit in 0..self.step_bits {
                let [one, other] = [first, last].map(|step| self.at + u64::from(step * self.step_bits + bit));
                let (one_bit, other_bit) = (bit_at(packet, one), bit_at(packet, other));
                if one_bit != other_bit {
                    for place in [one, other] {
                        packet[usize::try_from(place / 8).expect("in memory")] ^= 1 << (place % 8);
                    }
                }
            }
            (first, last) = (first + 1, last - 1);
        }
    }
}

fn bit_at(packet: &[u8], at: u64) -> bool {
    packet[usize::try_from(at / 8).expect("in memory")] >> (at % 8) & 1 == 1
}

impl SetupBits<'_> {
    /// Returns the next `count` bits, at most 32.
    fn read(&mut self, count: u32) -> Option<u32> {
        let end = self.at + u64::from(count);
        if end > 8 * self.bytes.len() as u64 {
            return None;
        }
        let first = usize::try_from(self.at / 8).ok()?;
        let bytes = &self.bytes[first..self.bytes.len().min(first + 5)];
        let word = bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
        let bits = word >> (self.at % 8) & ((1 << count) - 1);
        self.at = end;
        u32::try_from(bits).ok()
    }

    /// Passes bits.
    fn pass(&mut self, count: u64) -> Option<()> {
        self.at = self.at.checked_add(count).filter(|at| *at <= 8 * self.bytes.len() as u64)?;
        Some(())
    }

    /// Returns a number from 1 on.
    fn count(&mut self, bits: u32) -> Option<u32> {
        Some(self.read(bits)? + 1)
    }
}

/// What is kept of a setup.
#[derive(Default)]
struct VorbisSetup {
    /// The dimensions of each codebook.
    dimensions: Vec<u32>,
    residues: Vec<VorbisResidue>,
    mappings: Vec<VorbisMapping>,
    modes: u32,
    /// Bit `n` says whether blocks of mode `n` are long.
    long_modes: u64,
}

/// How spectra are stored.
struct VorbisResidue {
    kind: u32,
    range: [u32; 2],
    partition: u32,
    codebook: u32,
}

/// How channels are stored.
struct VorbisMapping {
    couplings: Option<Couplings>,
    /// Of each submap, the number of channels and the residue.
    submaps: Vec<(u32, u32)>,
}

impl VorbisSetup {
    fn read(bits: &mut SetupBits<'_>, channels: u8) -> Option<Self> {
        let mut setup = Self::default();
        let mut values = 0;
        for _ in 0..bits.count(8)? {
            let (dimensions, of_book) = pass_codebook(bits)?;
            setup.dimensions.push(dimensions);
            values += of_book;
            if values > MAX_VALUES {
                return None;
            }
        }
        for _ in 0..bits.count(6)? {
            bits.pass(16)?;
        }
        for _ in 0..bits.count(6)? {
            pass_floor(bits)?;
        }
        for _ in 0..bits.count(6)? {
            setup.residues.push(read_residue(bits)?);
        }
        for _ in 0..bits.count(6)? {
            setup.mappings.push(read_mapping(bits, channels)?);
        }
        setup.modes = bits.count(6)?;
        for mode in 0..setup.modes {
            setup.long_modes |= u64::from(bits.read(1)?) << mode;
            bits.pass(16 + 16 + 8)?;
        }
        (bits.read(1)? == 1).then_some(setup)
    }

    /// Returns whether some channels share a residue whose last codeword has more classes than partitions are left: the decoder then
    /// takes those for the next channel's. Encoders have that where channels are not coupled, as in surround sound of low rates.
    fn is_misread(&self, sizes: [u32; 2]) -> bool {
        let shared = self.mappings.iter().flat_map(|mapping| &mapping.submaps).filter(|(channels, _)| *channels > 1);
        shared.filter_map(|(_, residue)| self.residues.get(*residue as usize)).any(|residue| {
            let classes = self.dimensions.get(residue.codebook as usize).copied().unwrap_or_default().max(1);
            let parts = |size: u32| {
                let [begin, end] = residue.range.map(|place| place.min(size / 2));
                end.saturating_sub(begin) / residue.partition
            };
            residue.kind < 2 && sizes.into_iter().any(|size| !parts(size).is_multiple_of(classes))
        })
    }
}

/// Returns the dimensions of a codebook, and the number of values that its tables have.
fn pass_codebook(bits: &mut SetupBits<'_>) -> Option<(u32, u64)> {
    if bits.read(24)? != 0x0056_4342 {
        return None;
    }
    let (dimensions, entries) = (bits.read(16)?, bits.read(24)?);
    let is_ordered = bits.read(1)? == 1;
    if is_ordered {
        bits.pass(5)?;
        let mut passed = 0;
        while passed < entries {
            passed = passed.checked_add(bits.read(bits_of(entries - passed))?)?;
        }
        if passed > entries {
            return None;
        }
    } else if bits.read(1)? == 0 {
        bits.pass(5 * u64::from(entries))?;
    } else {
        for _ in 0..entries {
            if bits.read(1)? == 1 {
                bits.pass(5)?;
            }
        }
    }
    let all = u64::from(entries) * u64::from(dimensions);
    match bits.read(4)? {
        0 => return Some((dimensions, entries.into())),
        kind @ (1 | 2) => {
            bits.pass(32 + 32)?;
            let value_bits = bits.count(4)?;
            bits.pass(1)?;
            let count = if kind == 1 { root(entries, dimensions)?.into() } else { all };
            bits.pass(count.checked_mul(value_bits.into())?)?;
        }
        _ => return None,
    }
    Some((dimensions, all.max(entries.into())))
}

/// Returns the largest number whose power with so many factors is at most `power`.
fn root(power: u32, factors: u32) -> Option<u32> {
    if factors == 0 {
        return None;
    }
    let fits = |number: u64| {
        let mut product = 1_u64;
        // No number but 0 and 1 has more factors.
        for _ in 0..factors.min(32) {
            product = product.saturating_mul(number);
        }
        product <= power.into()
    };
    let (mut low, mut high) = (0, u64::from(power) + 1);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        (low, high) = if fits(middle) { (middle, high) } else { (low, middle) };
    }
    u32::try_from(low).ok()
}

fn pass_floor(bits: &mut SetupBits<'_>) -> Option<()> {
    match bits.read(16)? {
        0 => {
            bits.pass(8 + 16 + 16 + 6 + 8)?;
            let books = bits.count(4)?;
            bits.pass(8 * u64::from(books))
        }
        1 => {
            let partitions = bits.read(5)?;
            let mut classes = Vec::new();
            for _ in 0..partitions {
                classes.push(bits.read(4)? as usize);
            }
            let mut dimensions = [0; 16];
            for dimension in &mut dimensions[..classes.iter().max().map_or(0, |last| last + 1)] {
                *dimension = bits.count(3)?;
                let subclasses = bits.read(2)?;
                bits.pass(if subclasses > 0 { 8 } else { 0 } + (8 << subclasses))?;
            }
            bits.pass(2)?;
            let range_bits = u64::from(bits.read(4)?);
            bits.pass(classes.iter().map(|class| range_bits * u64::from(dimensions[*class])).sum())
        }
        _ => None,
    }
}

fn read_residue(bits: &mut SetupBits<'_>) -> Option<VorbisResidue> {
    let kind = bits.read(16).filter(|kind| *kind <= 2)?;
    let range = [bits.read(24)?, bits.read(24)?];
    let partition = bits.count(24)?;
    let classes = bits.count(6)?;
    let codebook = bits.read(8)?;
    let mut books = 0;
    for _ in 0..classes {
        books += bits.read(3)?.count_ones();
        if bits.read(1)? == 1 {
            books += bits.read(5)?.count_ones();
        }
    }
    bits.pass(8 * u64::from(books))?;
    Some(VorbisResidue { kind, range, partition, codebook })
}

fn read_mapping(bits: &mut SetupBits<'_>, channels: u8) -> Option<VorbisMapping> {
    if bits.read(16)? != 0 {
        return None;
    }
    let count = if bits.read(1)? == 1 { bits.count(4)? } else { 1 };
    let mut couplings = None;
    if bits.read(1)? == 1 {
        let steps = bits.count(8)?;
        let step_bits = 2 * bits_of(u32::from(channels).saturating_sub(1));
        couplings = Some(Couplings { at: bits.at, steps, step_bits });
        bits.pass(u64::from(steps * step_bits))?;
    }
    if bits.read(2)? != 0 {
        return None;
    }
    let mut submaps = vec![(0, 0); count as usize];
    for _ in 0..channels {
        let submap = if count > 1 { bits.read(4)? } else { 0 };
        submaps.get_mut(submap as usize)?.0 += 1;
    }
    for (_, residue) in &mut submaps {
        bits.pass(8 + 8)?;
        *residue = bits.read(8)?;
    }
    Some(VorbisMapping { couplings, submaps })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_root_is_the_largest_number_whose_power_fits() {
        for (power, factors, expected) in
            [(81, 4, 3), (80, 4, 2), (1, 200, 1), (0, 3, 0), (8000, 1, 8000), (16_777_215, 2, 4095)]
        {
            assert_eq!(root(power, factors), Some(expected), "{power} {factors}");
        }
        assert_eq!(root(5, 0), None);
    }
}
