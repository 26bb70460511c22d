//! Errors as one line of text.

/// Returns an error and its chain of sources in one line. A source whose text the error already contains is not
/// repeated.
#[must_use]
pub fn error_text(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let cause = error.to_string();
        if !text.contains(&cause) {
            text.push_str(": ");
            text.push_str(&cause);
        }
        source = error.source();
    }
    text
}
