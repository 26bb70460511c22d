//! What may be called a path or a class in a manifest.

use super::{MAX_CLASS_BYTES, MAX_URL_BYTES};

/// Returns whether `url` is a path to something inside the dataset's folder.
#[must_use]
pub fn is_relative_path(url: &str) -> bool {
    url.len() <= MAX_URL_BYTES && !has_control(url) && url.split('/').all(|part| !matches!(part, "" | "." | ".."))
}

/// Returns whether `name` can be the name of a class.
#[must_use]
pub fn is_class_name(name: &str) -> bool {
    (1..=MAX_CLASS_BYTES).contains(&name.len()) && !has_control(name)
}

fn has_control(text: &str) -> bool {
    text.as_bytes().iter().any(u8::is_ascii_control)
}
