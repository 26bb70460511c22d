//! Reads messages of Protocol Buffers, field by field, as their own parser does: fields may come in any order and more than
//! once. What a message means is defined elsewhere.

use std::ops::Range;

/// How a field of a message is encoded.
const VARINT: u64 = 0;
const FIXED_64: u64 = 1;
const DELIMITED: u64 = 2;
const GROUP: u64 = 3;
const GROUP_END: u64 = 4;
const FIXED_32: u64 = 5;
/// Upper limit of the depth of groups, as in the parser of Protocol Buffers.
const MAX_DEPTH: u32 = 100;

/// A field of a message.
pub(super) struct MessageField {
    pub(super) number: u64,
    pub(super) value: ProtobufValue,
}

/// The value of a field.
pub(super) enum ProtobufValue {
    /// An integer.
    Number(u64),
    /// Four bytes.
    Fixed(Range<usize>),
    /// A byte string, a message or packed numbers: where they lie.
    Delimited(Range<usize>),
    /// A value of a kind that no message here has.
    Unknown,
}

/// Reads the fields of the message that lies in a range of `bytes`.
pub(super) struct ProtobufMessage<'b> {
    bytes: &'b [u8],
    at: usize,
}

impl<'b> ProtobufMessage<'b> {
    /// Begins to read a message.
    pub(super) fn new(bytes: &'b [u8], range: Range<usize>) -> Self {
        Self { bytes: &bytes[..range.end], at: range.start }
    }

    /// Reads an integer of one to ten bytes.
    pub(super) fn varint(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..70).step_by(7) {
            let byte = *self.bytes.get(self.at)?;
            self.at += 1;
            // The tenth byte has one bit of the number; its others are lost, as in other parsers.
            number |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    /// Returns whether all of the message was read.
    pub(super) const fn is_at_end(&self) -> bool {
        self.at == self.bytes.len()
    }

    /// Returns the bytes that were not read.
    pub(super) fn rest(&self) -> &'b [u8] {
        &self.bytes[self.at..]
    }

    fn take(&mut self, bytes: u64) -> Option<Range<usize>> {
        let end = self.at.checked_add(usize::try_from(bytes).ok()?).filter(|end| *end <= self.bytes.len())?;
        let taken = self.at..end;
        self.at = end;
        Some(taken)
    }

    /// Reads the next field; the inner `None` is the end of the message, the outer one an error.
    pub(super) fn next(&mut self) -> Option<Option<MessageField>> {
        if self.is_at_end() {
            return Some(None);
        }
        let (number, kind) = self.tag()?;
        let value = match kind {
            VARINT => ProtobufValue::Number(self.varint()?),
            FIXED_64 => self.take(8).map(|_| ProtobufValue::Unknown)?,
            FIXED_32 => ProtobufValue::Fixed(self.take(4)?),
            DELIMITED => {
                let bytes = self.varint()?;
                ProtobufValue::Delimited(self.take(bytes)?)
            }
            GROUP => self.group(number).map(|()| ProtobufValue::Unknown)?,
            _ => return None,
        };
        Some(Some(MessageField { number, value }))
    }

    fn tag(&mut self) -> Option<(u64, u64)> {
        let tag = self.varint().filter(|tag| *tag <= u64::from(u32::MAX))?;
        (tag >> 3 > 0).then_some((tag >> 3, tag & 7))
    }

    /// Passes over a group, an old form of message that ends with a mark.
    fn group(&mut self, number: u64) -> Option<()> {
        let mut open = vec![number];
        while let Some(&innermost) = open.last() {
            let (number, kind) = self.tag()?;
            match kind {
                VARINT => {
                    self.varint()?;
                }
                FIXED_64 => {
                    self.take(8)?;
                }
                FIXED_32 => {
                    self.take(4)?;
                }
                DELIMITED => {
                    let bytes = self.varint()?;
                    self.take(bytes)?;
                }
                GROUP if open.len() < MAX_DEPTH as usize => open.push(number),
                GROUP_END if number == innermost => {
                    open.pop();
                }
                _ => return None,
            }
        }
        Some(())
    }
}
