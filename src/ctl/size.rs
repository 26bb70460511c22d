//! Sizes as people write them: `512MiB`, `2GB`, `1048576`.

use std::str::FromStr;

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bytes(pub(crate) u64);

const UNITS: [(&str, u64); 8] = [
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
];

impl FromStr for Bytes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (digits, factor) = UNITS
            .iter()
            .find_map(|(unit, factor)| text.strip_suffix(unit).map(|digits| (digits.trim_end(), *factor)))
            .unwrap_or((text.strip_suffix('B').unwrap_or(text), 1));
        let number = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(factor));
        number.map(Self).ok_or_else(|| format!("`{text}` is not a size; write a number of bytes, or as 512MiB"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_with_and_without_a_unit() {
        for (text, bytes) in [("0", 0), ("17", 17), ("17B", 17), ("4KiB", 4096), ("2 MB", 2_000_000), ("1GiB", 1 << 30)]
        {
            assert_eq!(text.parse(), Ok(Bytes(bytes)), "{text}");
        }
        for text in ["", "MiB", "-1", "1.5GiB", "99999999999TiB", "4XB"] {
            assert!(text.parse::<Bytes>().unwrap_err().contains(text), "{text}");
        }
    }
}
