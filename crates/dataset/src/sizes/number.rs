//! Sizes of the numbers that records have.

use spdl_shard::format::Record;

use crate::view::{ResolvedName, ValueReader};

/// Milliseconds of a second.
const MILLI: u32 = 1000;

/// Returns a number times a scale, rounded to a whole one, halves up.
///
/// # Errors
/// If no size can be it: what follows the field's name in a message.
pub(super) fn whole(number: f64, scale: u32) -> Result<u32, String> {
    let scaled = (number * f64::from(scale)).round();
    if (0.0..=f64::from(u32::MAX)).contains(&scaled) {
        return Ok(scaled as u32);
    }
    let times = if scale == 1 { String::new() } else { format!(", times {scale}") };
    Err(format!("is {number}{times}; a size is 0 to {}", u32::MAX))
}

/// The part of a file that is the sound of a record, in seconds, as far as the record says.
pub(super) struct SpanNumbers<'n> {
    start: Option<(&'n str, f64)>,
    seconds: Option<(&'n str, f64)>,
}

impl<'n> SpanNumbers<'n> {
    /// Reads the numbers of a record in the fields for the beginning and the length of a sound.
    pub(super) fn read(
        [start, seconds]: &'n [Option<String>; 2],
        values: &ValueReader<'_>,
        record: &Record<'_>,
    ) -> Result<Self, String> {
        let read = |name: &'n Option<String>| -> Result<Option<(&'n str, f64)>, String> {
            let Some(name) = name else { return Ok(None) };
            let number = values.number(record, name, &ResolvedName::of(name, values.index(), record))?;
            Ok(number.map(|number| (name.as_str(), number)))
        };
        Ok(Self { start: read(start)?, seconds: read(seconds)? })
    }

    /// Returns how long the sound is; `None` if the record leaves it open.
    pub(super) fn milliseconds(&self) -> Option<Result<u32, String>> {
        let (name, seconds) = self.seconds?;
        Some(whole(seconds, MILLI).map_err(|problem| format!("field `{name}` {problem}")))
    }

    /// Returns what is left of a file of so many milliseconds behind the beginning of the sound.
    pub(super) fn rest_of(&self, all: u32) -> Result<u32, String> {
        let Some((name, seconds)) = self.start else { return Ok(all) };
        let of_field = |problem: String| format!("field `{name}` {problem}");
        let start = whole(seconds, MILLI).map_err(of_field)?;
        all.checked_sub(start).ok_or_else(|| {
            of_field(format!("begins the sound at {seconds} seconds, and the file has {}", f64::from(all) / 1000.0))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_scaled_before_they_are_rounded() {
        assert_eq!(whole(2.4, 1), Ok(2));
        assert_eq!(whole(2.5, 1), Ok(3));
        assert_eq!(whole(0.0625, 1000), Ok(63), "62.5");
        assert_eq!(whole(f64::from(u32::MAX), 1), Ok(u32::MAX));
        for (number, scale) in [(-1.0, 1), (f64::NAN, 1), (f64::INFINITY, 1), (5e9, 1), (5e6, 1000)] {
            assert!(whole(number, scale).unwrap_err().contains("a size is 0 to 4294967295"), "{number}");
        }
    }
}
