//! The name of a function in Rust that a user's own worker has: `captions::tokens@3`.

use std::fmt;

/// A function in Rust and its version. A job names it as `module::function@version`, which cannot be the name of a
/// function in Python.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RustFunction<'a> {
    /// The path: two names at least, with `::` between.
    pub name: &'a str,
    /// The version of what it returns.
    pub version: u32,
}

impl<'a> RustFunction<'a> {
    /// Reads a name with a version; `None` if the text is not one.
    #[must_use]
    pub fn parse(text: &'a str) -> Option<Self> {
        let (name, digits) = text.rsplit_once('@')?;
        let version = digits.parse::<u32>().ok().filter(|version| version.to_string() == digits)?;
        let is_path = name.contains("::") && name.split("::").all(is_identifier);
        is_path.then_some(Self { name, version })
    }
}

impl fmt::Display for RustFunction<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.name, self.version)
    }
}

/// Returns whether a text is an identifier, in Rust and in Python: letters, digits and `_`, and no digit first.
#[must_use]
pub fn is_identifier(name: &str) -> bool {
    let mut letters = name.chars();
    letters.next().is_some_and(|first| first.is_alphabetic() || first == '_')
        && letters.all(|letter| letter.is_alphanumeric() || letter == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_in_rust_has_a_path_and_a_version() {
        for (text, name, version) in [
            ("captions::tokens@3", "captions::tokens", 3),
            ("a::b_1::c@0", "a::b_1::c", 0),
            ("a::b@4294967295", "a::b", u32::MAX),
        ] {
            let function = RustFunction::parse(text).unwrap();
            assert_eq!((function, function.to_string()), (RustFunction { name, version }, text.to_owned()));
        }
        for text in [
            "captions::tokens",
            "tokens@3",
            "captions:tokens@3",
            "captions:tokens",
            "a::@1",
            "::b@1",
            "a::b@",
            "a::b@-1",
            "a::b@+1",
            "a::b@01",
            "a::b@4294967296",
            "a::b@1@2",
            "a:::b@1",
            "a::b c@1",
            "a::1@1",
            "@1",
            "",
        ] {
            assert_eq!(RustFunction::parse(text), None, "{text}");
        }
    }
}
