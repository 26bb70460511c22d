//! Operations that give each value a new one, whatever its place: tables of 256 values.

use super::{
    RgbPicture,
    lookup::{map_all, map_each},
};

/// Tables of values, composed of those of several operations.
#[derive(Default)]
#[allow(clippy::large_enum_variant, reason = "there is one at a time, and it is not moved")]
pub(super) enum ValueTables {
    /// Nothing changes.
    #[default]
    Identity,
    /// One table for all channels.
    Shared([u8; 256]),
    /// A table for each channel.
    Each([[u8; 256]; 3]),
}

impl ValueTables {
    /// Appends an operation that is the same for all channels.
    pub(super) fn then(&mut self, next: &[u8; 256]) {
        match self {
            Self::Identity => *self = Self::Shared(*next),
            Self::Shared(table) => append(table, next),
            Self::Each(tables) => tables.iter_mut().for_each(|table| append(table, next)),
        }
    }

    /// Appends an operation with a table for each channel.
    pub(super) fn then_each(&mut self, next: &[[u8; 256]; 3]) {
        let mut tables = match self {
            _ if next[0] == next[1] && next[1] == next[2] => return self.then(&next[0]),
            Self::Identity => return *self = Self::Each(*next),
            Self::Shared(table) => [*table; 3],
            Self::Each(tables) => *tables,
        };
        tables.iter_mut().zip(next).for_each(|(table, next)| append(table, next));
        *self = Self::Each(tables);
    }

    /// Returns the histograms of the picture's channels after these operations.
    pub(super) fn mapped(&self, histograms: [[u32; 256]; 3]) -> [[u32; 256]; 3] {
        let tables = match self {
            Self::Identity => return histograms,
            Self::Shared(table) => [table; 3],
            Self::Each(tables) => tables.each_ref(),
        };
        let mut mapped = [[0; 256]; 3];
        for ((mapped, table), histogram) in mapped.iter_mut().zip(tables).zip(histograms) {
            for (value, count) in table.iter().zip(histogram) {
                mapped[usize::from(*value)] += count;
            }
        }
        mapped
    }

    /// Writes the values, and starts again with tables that change nothing.
    pub(super) fn write(&mut self, picture: &mut RgbPicture<'_>, result: &mut Vec<u8>) {
        match self {
            Self::Identity => return,
            Self::Shared(table) => picture.change(result, |pass| map_all(table, pass)),
            Self::Each(tables) => picture.change(result, |pass| map_each(tables, pass)),
        }
        *self = Self::Identity;
    }
}

/// Appends a table to another.
fn append(table: &mut [u8; 256], next: &[u8; 256]) {
    table.iter_mut().for_each(|value| *value = next[usize::from(*value)]);
}

fn table(of: impl Fn(u8) -> u8) -> [u8; 256] {
    std::array::from_fn(|value| of(value as u8))
}

/// Multiplies the values, with fractions of a level cut off.
pub(super) fn brightness(factor: f32) -> [u8; 256] {
    table(|value| (f32::from(value) * factor) as u8)
}

/// Blends the values with one value.
pub(super) fn blend(with: f32, factor: f32) -> [u8; 256] {
    table(|value| (f32::from(value) * factor + with * (1.0 - factor)) as u8)
}

pub(super) fn invert() -> [u8; 256] {
    table(|value| !value)
}

pub(super) fn posterize(bits: u32) -> [u8; 256] {
    let mask = !(0xff_u32 >> bits.min(8)) as u8;
    table(|value| value & mask)
}

pub(super) fn solarize(threshold: f32) -> [u8; 256] {
    table(|value| if f32::from(value) >= threshold { !value } else { value })
}

/// Stretches the values between `least` and `greatest` to all values.
pub(super) fn autocontrast(least: u8, greatest: u8) -> [u8; 256] {
    if least == greatest {
        return table(|value| value);
    }
    let step = f32::from(greatest - least) * (1.0 / 255.0);
    table(|value| (f32::from(value.saturating_sub(least)) / step) as u8)
}

/// Gives each value the share of the pixels below it, as PIL's `equalize` does.
pub(super) fn equalize(histogram: &[u32; 256]) -> [u8; 256] {
    let pixels: u64 = histogram.iter().map(|count| u64::from(*count)).sum();
    let of_greatest = histogram.iter().rev().find(|count| **count > 0).copied().unwrap_or_default();
    let step = (pixels - u64::from(of_greatest)) / 255;
    if step == 0 {
        return table(|value| value);
    }
    let mut below = 0;
    histogram.map(|count| {
        let share = (below + step / 2) / step;
        below += u64::from(count);
        share.min(255) as u8
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_applied_in_order() {
        let rgb: Vec<u8> = (0..=255).flat_map(|value| [value, value / 2, 7]).collect();
        let expected: Vec<u8> = rgb.iter().map(|value| (f32::from(!value) * 0.5) as u8 & 0xf0).collect();
        let mut tables = ValueTables::default();
        for next in [invert(), brightness(0.5), posterize(4)] {
            tables.then(&next);
        }
        let mut picture = RgbPicture { pixels: rgb.into(), size: [256, 1] };
        tables.write(&mut picture, &mut Vec::new());
        assert_eq!(picture.pixels, expected);
        tables.write(&mut picture, &mut Vec::new());
        assert_eq!(picture.pixels, expected, "nothing is written twice");
    }

    #[test]
    fn each_channel_has_its_own_table() {
        let mut picture = RgbPicture { pixels: vec![1, 2, 3, 4, 5, 6].into(), size: [2, 1] };
        let mut tables = ValueTables::default();
        tables.then_each(&[invert(), posterize(8), posterize(0)]);
        tables.write(&mut picture, &mut Vec::new());
        assert_eq!(*picture.pixels, [254, 2, 0, 251, 5, 0]);
    }

    #[test]
    fn factors_that_are_extreme_are_clipped() {
        assert_eq!(brightness(1e9)[1..], [255; 255]);
        assert_eq!(brightness(1e9)[0], 0);
        assert_eq!((blend(100.0, 1e3)[99], blend(100.0, 1e3)[101]), (0, 255));
    }

    #[test]
    fn a_channel_of_one_value_is_not_changed() {
        let mut histogram = [0; 256];
        histogram[77] = 1000;
        assert_eq!(equalize(&histogram), table(|value| value));
        assert_eq!(autocontrast(9, 9), table(|value| value));
    }
}
