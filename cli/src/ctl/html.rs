//! Pages that commands write: self-contained HTML without scripts, of which nothing is loaded. Names and texts come from other people, so
//! all of them are escaped.

use spdl_process::Printable;

/// Returns the beginning of a page with this title and style, up to its heading.
pub(super) fn begin(title: &str, style: &str) -> String {
    let title = escaped(title);
    format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title}</title>\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\
         <style>{style}</style></head><body><main><h1>{title}</h1>"
    )
}

/// The end of a page.
pub(super) const END: &str = "</main></body></html>\n";

/// Escapes a text for use between tags and in attributes. Characters that change the direction of what follows, and control characters,
/// are written as in a terminal.
pub(super) fn escaped(text: &str) -> String {
    let text = Printable(text).to_string();
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            letter => out.push(letter),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_is_markup() {
        assert_eq!(
            escaped("<a b=\"c\" d='e'>&\n\x1b\u{202e}"),
            "&lt;a b=&quot;c&quot; d=&#39;e&#39;&gt;&amp;\n\\u{1b}\\u{202e}"
        );
        assert!(begin("</title><b>", "").contains("<title>&lt;/title&gt;&lt;b&gt;</title>"));
    }
}
