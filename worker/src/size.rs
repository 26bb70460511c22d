//! Parses CPU shares as people write them.

/// Parses a number of cores (`6`, `2.5`), or a share of the node's `cores` (`40%`).
///
/// # Errors
/// A message that describes what is wrong with the text.
pub fn parse_cores(text: &str, cores: f64) -> Result<f64, String> {
    let wrong = || format!("`{text}` is not a number of cores; write, for example, 6 or 40%");
    let value = match text.strip_suffix('%') {
        Some(percent) => percent.trim().parse::<f64>().map_err(|_| wrong())? / 100.0 * cores,
        None => text.parse().map_err(|_| wrong())?,
    };
    if value > 0.0 && value <= 65_536.0 { Ok(value) } else { Err(wrong()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_are_a_number_or_a_share_of_the_node() {
        assert_eq!(parse_cores("2.5", 10.0), Ok(2.5));
        assert_eq!(parse_cores("40%", 10.0), Ok(4.0));
        for bad in ["", "%", "0", "-1", "nan", "inf", "ten"] {
            assert!(parse_cores(bad, 10.0).is_err(), "{bad}");
        }
    }
}
