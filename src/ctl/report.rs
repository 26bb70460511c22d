//! What commands print: the last line on standard output is one JSON object where `--json` asks for it.

use serde::Serialize;

/// Prints `value` as one line of JSON.
pub(crate) fn json(value: &impl Serialize) {
    println!("{}", serde_json::to_string(value).expect("plain data serialises"));
}

/// `1234567` as `1 234 567`.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(' ');
        }
        out.push(digit);
    }
    out
}

/// Bytes with a binary unit, to three digits.
pub(crate) fn bytes(number: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = number as f64;
    let mut unit = 0;
    while value >= 1000.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let digits = if unit == 0 || value >= 100.0 { 0 } else { 1 };
    format!("{value:.digits$} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_read_well() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(1_234_567), "1 234 567");
        assert_eq!(bytes(999), "999 B");
        assert_eq!(bytes(110_592), "108 KiB");
        assert_eq!(bytes(1_572_864), "1.5 MiB");
    }
}
