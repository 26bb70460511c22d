//! Cuts a source into units of work by the sizes of its files alone.

/// A run of bytes of a file: the documents that begin in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FilePart {
    /// Number of the file.
    pub(super) file: usize,
    pub(super) first: u64,
    pub(super) end: u64,
}

/// The most units that a source is cut into, unless its files alone are more than can be joined.
const MAX_UNITS: u64 = 4096;
/// Size of a unit of a small source, in bytes.
const MIN_UNIT_BYTES: u64 = 16 << 20;

/// Returns the size of a unit of a source of this size, in bytes.
pub(super) fn unit_bytes(source_bytes: u64) -> u64 {
    source_bytes.div_ceil(MAX_UNITS).max(MIN_UNIT_BYTES)
}

/// Returns the units of files, each with its size and whether it can be cut: a long file is cut, and short ones that follow each other
/// are joined.
pub(super) fn units(files: impl Iterator<Item = (u64, bool)>, unit_bytes: u64) -> Vec<Vec<FilePart>> {
    let (mut units, mut open, mut open_bytes) = (Vec::new(), Vec::new(), 0);
    for (file, (bytes, can_be_cut)) in files.enumerate() {
        if bytes > unit_bytes && can_be_cut {
            units.extend((!open.is_empty()).then(|| std::mem::take(&mut open)));
            open_bytes = 0;
            let count = bytes.div_ceil(unit_bytes);
            let cut = |number: u64| (u128::from(bytes) * u128::from(number) / u128::from(count)) as u64;
            units.extend((0..count).map(|number| vec![FilePart { file, first: cut(number), end: cut(number + 1) }]));
            continue;
        }
        if open_bytes + bytes > unit_bytes && !open.is_empty() {
            units.push(std::mem::take(&mut open));
            open_bytes = 0;
        }
        open.push(FilePart { file, first: 0, end: bytes });
        open_bytes += bytes;
    }
    units.extend((!open.is_empty()).then_some(open));
    units
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(files: &[(u64, bool)], unit_bytes: u64) -> Vec<Vec<(usize, u64, u64)>> {
        let units = units(files.iter().copied(), unit_bytes);
        units.iter().map(|unit| unit.iter().map(|part| (part.file, part.first, part.end)).collect()).collect()
    }

    #[test]
    fn long_files_are_cut_and_short_ones_are_joined() {
        let files = [(3, false), (4, true), (5, false), (25, true), (30, false), (0, true), (1, false)];
        let expected: [&[_]; 7] = [
            &[(0, 0, 3), (1, 0, 4)],
            &[(2, 0, 5)],
            &[(3, 0, 8)],
            &[(3, 8, 16)],
            &[(3, 16, 25)],
            &[(4, 0, 30)],
            &[(5, 0, 0), (6, 0, 1)],
        ];
        assert_eq!(cut(&files, 10), expected);
        assert!(cut(&[], 10).is_empty());
    }

    #[test]
    fn units_of_a_large_source_are_larger() {
        assert_eq!([0, 1 << 30, 1 << 40].map(unit_bytes), [16 << 20, 16 << 20, 256 << 20]);
    }
}
