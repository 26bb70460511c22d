//! Parses sizes as people write them.

/// Parses a number of bytes: `512MB`, `1.5GiB`, `4096`. The units are decimal (kB, MB, GB, TB) or binary (KiB, MiB,
/// GiB, TiB).
///
/// # Errors
/// A message that describes what is wrong with the text.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = (&text[..digits], text[digits..].trim());
    let factor: u64 = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" => 1_000,
        "m" | "mb" => 1_000_000,
        "g" | "gb" => 1_000_000_000,
        "t" | "tb" => 1_000_000_000_000,
        "ki" | "kib" => 1 << 10,
        "mi" | "mib" => 1 << 20,
        "gi" | "gib" => 1 << 30,
        "ti" | "tib" => 1 << 40,
        _ => return Err(format!("`{unit}` is not a unit of bytes; write MB, GB, MiB or GiB")),
    };
    let number: f64 = number.parse().map_err(|_| format!("`{text}` is not a size; write, for example, 512MB"))?;
    let bytes = number * factor as f64;
    if bytes < 1.0 || bytes > 2_f64.powi(60) {
        return Err(format!("`{text}` is not between a byte and an exbibyte"));
    }
    Ok(bytes as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_in_units_of_ten_and_of_two() {
        for (text, bytes) in
            [("512MB", 512_000_000), ("1.5GiB", 3 << 29), ("4096", 4096), ("8 k", 8_000), ("2ti", 2 << 40)]
        {
            assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
        }
        for bad in ["", "MB", "1.2.3", "5 parsecs", "-1", "0", "1e9", "99999999TB"] {
            assert!(parse_bytes(bad).is_err(), "{bad}");
        }
    }
}
