//! Reads the text of an ordinary record in one pass over its line. Whatever is not ordinary, or wrong, `serde_json` reads again.

use serde::de::IgnoredAny;

/// One in each byte of a word.
const ONES: u64 = u64::MAX / 255;
/// The values of hexadecimal digits, by their bytes; above 15 for all other bytes.
const DIGITS: [u8; 256] = digits();

/// Returns the text of the record in a line, in the first of these fields that is there and not null, as
/// `serde_json` would find it. A text with escapes is in `memory`.
///
/// `None` if the line is no record, none of the fields is a text, or another is no text; and if one is there twice, or a name has escapes.
pub(super) fn fast_text<'l>(line: &'l str, fields: &[String], memory: &'l mut String) -> Option<&'l str> {
    memory.clear();
    let mut reader = OrdinaryRecord { line, at: 0 };
    // The best field so far, and its text if that is not in the memory.
    let mut best: Option<(usize, Option<&str>)> = None;
    let mut seen = 0;
    reader.take(b'{')?;
    loop {
        let name = reader.text(memory)??;
        reader.take(b':')?;
        if let Some(place) = fields.iter().position(|field| field == name) {
            let bit = 1_u64.checked_shl(place as u32)?;
            if seen & bit != 0 {
                return None;
            }
            seen |= bit;
            if reader.next()? == b'n' {
                reader.skip(memory)?;
            } else if best.is_none_or(|(best, _)| place < best) {
                memory.clear();
                best = Some((place, reader.text(memory)?));
            } else {
                reader.skip_text(memory)?;
            }
        } else {
            reader.skip(memory)?;
        }
        match reader.next()? {
            b',' => reader.at += 1,
            b'}' => break,
            _ => return None,
        }
    }
    reader.at += 1;
    if reader.next().is_some() {
        return None;
    }
    let (_, text) = best?;
    Some(text.unwrap_or(memory))
}

/// Reads the parts of a record, one after the other. What it returns nothing for is not there.
struct OrdinaryRecord<'l> {
    line: &'l str,
    at: usize,
}

impl<'l> OrdinaryRecord<'l> {
    /// Returns the next byte that is no space.
    fn next(&mut self) -> Option<u8> {
        loop {
            match *self.line.as_bytes().get(self.at)? {
                b' ' | b'\t' | b'\r' | b'\n' => self.at += 1,
                byte => return Some(byte),
            }
        }
    }

    fn take(&mut self, expected: u8) -> Option<()> {
        (self.next()? == expected).then(|| self.at += 1)
    }

    /// Passes over a text. The memory is as before.
    fn skip_text(&mut self, memory: &mut String) -> Option<()> {
        let before = memory.len();
        self.text(memory)?;
        memory.truncate(before);
        Some(())
    }

    /// Passes over a value. The memory is as before.
    fn skip(&mut self, memory: &mut String) -> Option<()> {
        if self.next()? == b'"' {
            return self.skip_text(memory);
        }
        let mut values = serde_json::Deserializer::from_str(self.line.get(self.at..)?).into_iter::<IgnoredAny>();
        values.next()?.ok()?;
        self.at += values.byte_offset();
        Some(())
    }

    /// Reads a text. Returns it if it has no escapes, and else appends it to the memory.
    fn text(&mut self, memory: &mut String) -> Option<Option<&'l str>> {
        self.take(b'"')?;
        let bytes = self.line.as_bytes();
        let (mut start, mut has_escapes) = (self.at, false);
        loop {
            let end = start + stop(bytes.get(start..)?)?;
            let plain = self.line.get(start..end)?;
            match bytes[end] {
                b'"' => {
                    self.at = end + 1;
                    if !has_escapes {
                        return Some(Some(plain));
                    }
                    memory.push_str(plain);
                    return Some(None);
                }
                b'\\' => {
                    memory.push_str(plain);
                    has_escapes = true;
                    start = escapes(bytes, end, memory)?;
                }
                _ => return None,
            }
        }
    }
}

/// Returns the place of the first quote, backslash or control character.
fn stop(bytes: &[u8]) -> Option<usize> {
    let (words, rest) = bytes.as_chunks::<8>();
    for (number, word) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*word);
        let [quote, backslash] = [b'"', b'\\'].map(|byte| word ^ (ONES * u64::from(byte)));
        // The highest bit of each byte below `least`; it may also be there behind the first of these, by a carry.
        let below = |word: u64, least: u64| word.wrapping_sub(ONES * least) & !word;
        let found = (below(word, 0x20) | below(quote, 1) | below(backslash, 1)) & (ONES << 7);
        if found != 0 {
            return Some(number * 8 + found.trailing_zeros() as usize / 8);
        }
    }
    let found = rest.iter().position(|byte| matches!(byte, 0..0x20 | b'"' | b'\\'))?;
    Some(bytes.len() - rest.len() + found)
}

/// Reads escapes that follow each other, from `at` on, and returns where they end.
fn escapes(bytes: &[u8], mut at: usize, memory: &mut String) -> Option<usize> {
    while bytes.get(at) == Some(&b'\\') {
        let character = match bytes.get(at + 1)? {
            b'n' => '\n',
            b'"' => '"',
            b'\\' => '\\',
            b't' => '\t',
            b'r' => '\r',
            b'/' => '/',
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'u' => {
                let (character, end) = numbered(bytes, at + 2)?;
                memory.push(character);
                at = end;
                continue;
            }
            _ => return None,
        };
        memory.push(character);
        at += 2;
    }
    Some(at)
}

/// Reads the digits of a character's number, and the second half of a pair; returns where they end.
fn numbered(bytes: &[u8], at: usize) -> Option<(char, usize)> {
    let first = hexadecimal(bytes.get(at..at + 4)?)?;
    if !(0xd800..0xdc00).contains(&first) {
        return Some((char::from_u32(first)?, at + 4));
    }
    let second = hexadecimal(bytes.get(at + 4..at + 10)?.strip_prefix(b"\\u")?)?;
    let low = second.checked_sub(0xdc00).filter(|low| *low < 0x400)?;
    Some((char::from_u32(0x1_0000 + ((first - 0xd800) << 10) + low)?, at + 10))
}

fn hexadecimal(digits: &[u8]) -> Option<u32> {
    let [a, b, c, d] = <[u8; 4]>::try_from(digits).ok()?.map(|digit| DIGITS[usize::from(digit)]);
    let of = |high: u8, low: u8| u32::from(high) << 4 | u32::from(low);
    ((a | b | c | d) < 16).then(|| of(a, b) << 8 | of(c, d))
}

const fn digits() -> [u8; 256] {
    let mut digits = [u8::MAX; 256];
    let mut value = 0;
    while value < 16 {
        let lower = b"0123456789abcdef"[value];
        digits[lower as usize] = value as u8;
        digits[lower.to_ascii_uppercase() as usize] = value as u8;
        value += 1;
    }
    digits
}
