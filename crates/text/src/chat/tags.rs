//! The tags `{% generation %}` and `{% endgeneration %}`, which transformers adds to Jinja. Each becomes a mark in the rendered text, inside
//! a scope, as the tags of transformers have one; whitespace is controlled as on the tags themselves.

use std::ops::Range;

use super::ChatError;

/// Stands where the model starts to write. Messages with such a character are refused, so that none can pose as a mark.
pub(super) const BEGIN: char = '\u{10fff0}';
/// Stands where the model's part ends.
pub(super) const END: char = '\u{10fff1}';
/// Stands for the content of a message whose place is sought.
pub(super) const CONTENT: char = '\u{10fff2}';
/// Stands for the answer that follows it.
pub(super) const ANSWER: char = '\u{10fff3}';

/// Returns whether a record has one of the characters above, as such or as an escape of JSON.
pub(super) fn has_marks(record: &str) -> bool {
    // The four differ in the last digit of their escapes.
    let is_escape =
        |window: &[u8]| window[..11].eq_ignore_ascii_case(b"\\udbff\\udff") && (b'0'..=b'3').contains(&window[11]);
    record.contains([BEGIN, END, CONTENT, ANSWER]) || record.as_bytes().windows(12).any(is_escape)
}

/// A template whose tags are replaced.
#[derive(Debug)]
pub(super) struct Tagged {
    pub(super) source: String,
    /// The lines of `{% generation %}`, from 1.
    pub(super) lines: Vec<usize>,
}

impl Tagged {
    /// Replaces the tags of a template. All lines keep their numbers.
    pub(super) fn new(name: &str, template: &str) -> Result<Tagged, ChatError> {
        let mut tagged = Tagged { source: String::with_capacity(template.len()), lines: Vec::new() };
        let (mut copied, mut open, mut counted, mut line) = (0, None, 0, 1);
        for tag in tags(template) {
            line += template[counted..tag.range.start].matches('\n').count();
            counted = tag.range.start;
            let wrong = |problem: &str| ChatError::template(name, Some(line), problem);
            let lines = "\n".repeat(template[tag.range.clone()].matches('\n').count());
            let (left, right) = (tag.left, tag.right);
            let replaced = match (tag.word, open) {
                ("generation", None) => {
                    tagged.lines.push(line);
                    open = Some(line);
                    format!("{{%{left} with %}}{{{{ '{BEGIN}' }}}}{{% if true {lines}{right}%}}")
                }
                ("generation", Some(_)) => return Err(wrong("`{% generation %}` inside another one")),
                (_, None) => return Err(wrong("`{% endgeneration %}` without its `{% generation %}`")),
                (_, Some(_)) => {
                    open = None;
                    format!("{{%{left} endif %}}{{{{ '{END}' }}}}{{% endwith {lines}{right}%}}")
                }
            };
            tagged.source.push_str(&template[copied..tag.range.start]);
            tagged.source.push_str(&replaced);
            copied = tag.range.end;
        }
        if open.is_some() {
            return Err(ChatError::template(name, open, "`{% generation %}` without its `{% endgeneration %}`"));
        }
        tagged.source.push_str(&template[copied..]);
        Ok(tagged)
    }
}

/// Takes the marks out of a rendered text, and returns the ranges of bytes between them.
pub(super) fn take_marks(marked: &str) -> (String, Vec<Range<usize>>) {
    let (mut text, mut spans, mut start) = (String::with_capacity(marked.len()), Vec::new(), None);
    let mut rest = marked;
    while let Some(at) = rest.find([BEGIN, END]) {
        text.push_str(&rest[..at]);
        match rest[at..].chars().next() {
            Some(BEGIN) => start = start.or(Some(text.len())),
            _ => spans.extend(start.take().map(|start| start..text.len())),
        }
        rest = &rest[at + BEGIN.len_utf8()..];
    }
    text.push_str(rest);
    (text, spans)
}

/// A tag of ours.
struct Tag<'t> {
    range: Range<usize>,
    word: &'t str,
    /// How whitespace before and after it is controlled.
    left: &'t str,
    right: &'t str,
}

/// Finds our tags: not those in comments, in texts of expressions, or between `{% raw %}` and `{% endraw %}`.
fn tags(template: &str) -> Vec<Tag<'_>> {
    let (mut found, mut at, mut is_raw) = (Vec::new(), 0, false);
    while let Some(start) = template[at..].find('{').map(|next| at + next) {
        if is_raw && !ends_raw(&template[start..]) {
            at = start + 1;
            continue;
        }
        let end = match template.as_bytes().get(start + 1) {
            Some(b'#') => template[start..].find("#}").map(|end| start + end + 2),
            Some(b'{') => end_of(template, start + 2, "}}"),
            Some(b'%') => end_of(template, start + 2, "%}"),
            _ => Some(start + 1),
        };
        let Some(end) = end else { break };
        at = end;
        if template[start..].starts_with("{%") {
            let tag = tag(template, start..end);
            is_raw = tag.word == "raw";
            if ["generation", "endgeneration"].contains(&tag.word) {
                found.push(tag);
            }
        }
    }
    found
}

/// Returns whether a text begins with `{% endraw %}`.
fn ends_raw(text: &str) -> bool {
    let control = ['-', '+'];
    let word = text.strip_prefix("{%").map(|tag| tag.strip_prefix(control).unwrap_or(tag).trim_start());
    let rest = word.and_then(|word| word.strip_prefix("endraw")).map(str::trim_start);
    rest.is_some_and(|rest| rest.strip_prefix(control).unwrap_or(rest).starts_with("%}"))
}

fn tag(template: &str, range: Range<usize>) -> Tag<'_> {
    let inner = &template[range.start + 2..range.end - 2];
    let left = &inner[..usize::from(inner.starts_with(['-', '+']))];
    let right = &inner[inner.len() - usize::from(inner.len() > left.len() && inner.ends_with(['-', '+']))..];
    Tag { range, word: inner[left.len()..inner.len() - right.len()].trim(), left, right }
}

/// Returns where a tag or an expression ends, after its `close`: braces and texts in it are passed over.
fn end_of(template: &str, start: usize, close: &str) -> Option<usize> {
    let (bytes, mut at, mut depth) = (template.as_bytes(), start, 0_usize);
    while at < bytes.len() {
        if depth == 0 && template.is_char_boundary(at) && template[at..].starts_with(close) {
            return Some(at + close.len());
        }
        match bytes[at] {
            quote @ (b'"' | b'\'') => {
                at += 1;
                while at < bytes.len() && bytes[at] != quote {
                    at += 1 + usize::from(bytes[at] == b'\\');
                }
            }
            b'{' => depth += 1,
            b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        at += 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tagged(template: &str) -> Tagged {
        Tagged::new("t", template).unwrap()
    }

    #[test]
    fn a_tag_keeps_its_whitespace_control_and_its_line() {
        let tagged = tagged("a\n{%- generation +%}b{%\nendgeneration -%}c");
        let expected = format!(
            "a\n{{%- with %}}{{{{ '{BEGIN}' }}}}{{% if true +%}}b{{% endif %}}{{{{ '{END}' }}}}{{% endwith \n-%}}c"
        );
        assert_eq!(tagged.source, expected);
        assert_eq!(tagged.lines, [2]);
    }

    #[test]
    fn tags_in_comments_texts_and_raw_blocks_are_none() {
        for template in [
            "{# {% generation %} #}",
            "{{ '{% generation %}' }}",
            "{{ {'a': {'b': \"{% generation %}\"}} }}",
            "{% raw %}{% generation %}{{{%- endraw %}",
            "{% set generation = 1 %}",
            "{ % generation % }",
        ] {
            assert_eq!(tagged(template).source, template);
        }
    }

    #[test]
    fn a_tag_without_its_other_is_refused_with_its_line() {
        let refused = |template| Tagged::new("t", template).unwrap_err().to_string();
        assert!(refused("\n{% generation %}").contains("line 2"), "{}", refused("\n{% generation %}"));
        assert!(refused("{% endgeneration %}").contains("line 1"));
        assert!(refused("{% generation %}\n{% generation %}").contains("inside another"));
    }

    #[test]
    fn marks_become_ranges_of_bytes() {
        let (text, spans) = take_marks(&format!("é{BEGIN}ab{END}c{BEGIN}{END}d"));
        assert_eq!((text.as_str(), spans), ("éabcd", vec![2..4, 5..5]));
    }

    #[test]
    fn a_record_with_marks_is_found_in_each_spelling() {
        assert!(has_marks("\u{10fff0}") && has_marks(r"\uDBFF\uDFF1") && has_marks(r"\udbff\udff2"));
        assert!(!has_marks("\u{10fff4} \\udbff"));
    }
}
