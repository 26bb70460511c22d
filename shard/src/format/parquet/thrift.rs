//! Walks a struct in Thrift's compact protocol, in which Parquet's headers are written, without allocating anything:
//! <https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md>.

use std::ops::Range;

/// Upper limit of the depth of structs and lists.
const MAX_DEPTH: usize = 16;

/// Walks the struct at the start of `bytes`, and passes each value in it to `found` with its path: the ids of the fields that lead to
/// it. Returns the length of the struct; `None` if it is not one.
pub(super) fn walk(bytes: &[u8], found: &mut dyn FnMut(&[i16], Found)) -> Option<usize> {
    let mut walker = Walker { bytes, at: 0, path: [0; MAX_DEPTH], found, last: &[], removed: Vec::new() };
    walker.structure(0)?;
    Some(walker.at)
}

/// A value that was found in a struct.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    Number(i64),
    /// Bytes or text, or the beginning of a struct or a list.
    Other,
}

/// A path of structs, and the number of the last field that is kept of them.
pub(super) type LastField<'p> = (&'p [i16], i16);

/// Copies the struct at the start of `bytes` without the fields that follow the `last` ones of some structs. Returns
/// `None` if it is not a struct, or if the fields of one of these structs are out of order.
pub(super) fn without_fields_behind(bytes: &[u8], last: &[LastField<'_>]) -> Option<Vec<u8>> {
    let mut walker = Walker { bytes, at: 0, path: [0; MAX_DEPTH], found: &mut |_, _| {}, last, removed: Vec::new() };
    walker.structure(0)?;
    let (mut kept, mut at) = (Vec::with_capacity(walker.at), 0);
    for Range { start, end } in &walker.removed {
        kept.extend_from_slice(&bytes[at..*start]);
        at = *end;
    }
    kept.extend_from_slice(&bytes[at..walker.at]);
    Some(kept)
}

struct Walker<'a> {
    bytes: &'a [u8],
    at: usize,
    path: [i16; MAX_DEPTH],
    found: &'a mut dyn FnMut(&[i16], Found),
    last: &'a [LastField<'a>],
    /// Where the fields behind the last ones lie.
    removed: Vec<Range<usize>>,
}

impl Walker<'_> {
    fn structure(&mut self, depth: usize) -> Option<()> {
        if depth == MAX_DEPTH {
            return None;
        }
        let last = self.last.iter().find(|(path, _)| *path == &self.path[..depth]).map(|(_, last)| *last);
        let (mut id, mut behind) = (0_i16, None);
        loop {
            let start = self.at;
            let Some((next, kind)) = self.field(id)? else {
                self.removed.extend(behind.map(|behind| behind..start));
                return Some(());
            };
            match last {
                Some(last) if next > last => _ = behind.get_or_insert(start),
                Some(_) if behind.is_some() => return None,
                _ => {}
            }
            id = next;
            self.path[depth] = id;
            self.field_value(kind, depth)?;
        }
    }

    /// Reads the head of the field that follows field number `before`: its number and its type. The inner `None` is the
    /// end of the struct.
    fn field(&mut self, before: i16) -> Option<Option<(i16, u8)>> {
        let head = self.byte()?;
        if head == 0 {
            return Some(None);
        }
        let id = match head >> 4 {
            0 => i16::try_from(self.zigzag()?).ok()?,
            delta => before.checked_add(delta.into())?,
        };
        Some(Some((id, head & 15)))
    }

    fn field_value(&mut self, kind: u8, depth: usize) -> Option<()> {
        // In a struct, the type of a boolean is its value.
        if let 1 | 2 = kind {
            (self.found)(&self.path[..=depth], Found::Number(i64::from(kind == 1)));
            return Some(());
        }
        self.value(kind, depth)
    }

    fn value(&mut self, kind: u8, depth: usize) -> Option<()> {
        match kind {
            1..=3 => self.skip(1),
            4..=6 => {
                let value = self.zigzag()?;
                (self.found)(&self.path[..=depth], Found::Number(value));
                Some(())
            }
            7 => self.skip(8),
            8 => {
                (self.found)(&self.path[..=depth], Found::Other);
                let length = usize::try_from(self.varint()?).ok()?;
                self.skip(length)
            }
            9 | 10 => {
                (self.found)(&self.path[..=depth], Found::Other);
                self.list(depth)
            }
            12 => {
                (self.found)(&self.path[..=depth], Found::Other);
                self.structure(depth + 1)
            }
            _ => None,
        }
    }

    fn list(&mut self, depth: usize) -> Option<()> {
        if depth + 1 == MAX_DEPTH {
            return None;
        }
        let head = self.byte()?;
        let count = match head >> 4 {
            15 => self.varint()?,
            count => count.into(),
        };
        // Each element takes a byte at least.
        if count > (self.bytes.len() - self.at) as u64 {
            return None;
        }
        self.path[depth + 1] = 0;
        (0..count).try_for_each(|_| self.value(head & 15, depth + 1))
    }

    fn byte(&mut self) -> Option<u8> {
        let byte = *self.bytes.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    fn skip(&mut self, bytes: usize) -> Option<()> {
        self.at = self.at.checked_add(bytes).filter(|at| *at <= self.bytes.len())?;
        Some(())
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    fn zigzag(&mut self) -> Option<i64> {
        let value = self.varint()?;
        Some((value >> 1) as i64 ^ -((value & 1) as i64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Numbers = Vec<(Vec<i16>, i64)>;

    fn numbers(bytes: &[u8]) -> Option<(usize, Numbers)> {
        let mut found = Vec::new();
        let mut number = |path: &[i16], value| {
            if let Found::Number(value) = value {
                found.push((path.to_vec(), value));
            }
        };
        let length = walk(bytes, &mut number)?;
        Some((length, found))
    }

    #[test]
    fn numbers_are_found_by_their_path() {
        // {1: i32 -3, 3: true, 5: {1: i32 150, 2: [i32 1, 2]}, 20: binary "ab"}, and a byte that follows
        let bytes = [0x15, 5, 0x21, 0x2c, 0x15, 0xac, 2, 0x19, 0x25, 2, 4, 0, 0x08, 40, 2, b'a', b'b', 0, 99];
        let expected = [(vec![1], -3), (vec![3], 1), (vec![5, 1], 150), (vec![5, 2, 0], 1), (vec![5, 2, 0], 2)];
        assert_eq!(numbers(&bytes), Some((18, expected.to_vec())));
        for length in 0..18 {
            assert_eq!(numbers(&bytes[..length]), None, "cut off after {length} bytes");
        }
    }

    #[test]
    fn fields_behind_one_are_cut_off() {
        // {1: i32 -3, 3: true, 5: {1: i32 150, 2: true}, 20: binary "ab"}
        let bytes = [0x15, 5, 0x21, 0x2c, 0x15, 0xac, 2, 0x11, 0, 0x08, 40, 2, b'a', b'b', 0];
        let cut = |last| without_fields_behind(&bytes, &[(&[], last)]);
        assert_eq!([cut(0), cut(1)], [Some(vec![0]), Some(vec![0x15, 5, 0])]);
        assert_eq!(cut(5), Some([&bytes[..9], &[0]].concat()));
        assert_eq!([cut(19), cut(20)], [cut(5), Some(bytes.to_vec())]);
        let inner = without_fields_behind(&bytes, &[(&[5], 1), (&[], 5)]);
        assert_eq!(inner, Some([&bytes[..7], &[0, 0]].concat()));
        assert_eq!(without_fields_behind(&bytes[..7], &[(&[], 5)]), None, "cut off");
        assert_eq!(without_fields_behind(&[0x25, 5, 0x05, 2, 5, 0], &[(&[], 1)]), None, "field 1 behind field 2");
    }

    #[test]
    fn what_claims_more_than_there_is_ends_at_once() {
        assert_eq!(numbers(&[0x1c; 100]), None, "structs in structs");
        assert_eq!(numbers(&[0x19, 0xf5, 0xff, 0xff, 0xff, 0xff, 0x0f, 0, 0]), None, "a list of 4 G numbers");
        assert_eq!(numbers(&[0x18, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]), None, "a long text");
        assert_eq!(numbers(&[0x15, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]), None);
        assert_eq!(numbers(&[0x1b, 0]), None, "maps are in no header");
    }
}
