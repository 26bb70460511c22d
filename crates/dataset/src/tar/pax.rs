//! The pax records that override a member's header: `LENGTH KEY=VALUE\n`, where the length counts the whole record. They are
//! read as they arrive, and only values that the reader uses are kept: others, such as those of extended attributes, can be
//! of any size.

use super::{MAX_EXTENSION_BYTES, TarFault, header::Name};

/// Upper limit of the bytes before a record's value. The longest keys are names of extended attributes, of 255 bytes.
const MAX_HEAD_BYTES: usize = 4096;

/// The pax records that the reader uses.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Pax {
    pub(super) path: Option<Name>,
    pub(super) size: Option<u64>,
    pub(super) sparse: bool,
}

/// Reads the records of a pax header that arrives in pieces.
#[derive(Debug, Default)]
pub(super) struct PaxReader {
    pax: Pax,
    /// The length and the key of the record that is being read, up to its `=`.
    head: Vec<u8>,
    value: Option<PaxValue>,
}

/// The value of a record, while it is read.
#[derive(Debug)]
struct PaxValue {
    use_as: PaxUse,
    /// Its bytes, if they are used.
    bytes: Vec<u8>,
    /// Bytes of the value, and of the line feed behind it, that are still to come.
    left: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PaxUse {
    Path,
    Size,
    None,
}

impl PaxReader {
    /// Reads the next bytes of the header.
    pub(super) fn read(&mut self, mut bytes: &[u8]) -> Result<(), TarFault> {
        while !bytes.is_empty() {
            match &mut self.value {
                Some(value) => {
                    let (piece, rest) =
                        bytes.split_at(bytes.len().min(usize::try_from(value.left).unwrap_or(usize::MAX)));
                    bytes = rest;
                    value.left -= piece.len() as u64;
                    let is_over = value.left == 0;
                    if is_over && piece.last() != Some(&b'\n') {
                        return Err(bad());
                    }
                    if value.use_as != PaxUse::None {
                        value.bytes.extend_from_slice(&piece[..piece.len() - usize::from(is_over)]);
                    }
                    if is_over {
                        let value = self.value.take().expect("it is there");
                        self.record(&value)?;
                    }
                }
                None => {
                    let end = bytes.iter().position(|byte| *byte == b'=').map_or(bytes.len(), |equals| equals + 1);
                    let (piece, rest) = bytes.split_at(end);
                    bytes = rest;
                    self.head.extend_from_slice(piece);
                    if self.head.len() > MAX_HEAD_BYTES {
                        return Err(bad());
                    }
                    if self.head.ends_with(b"=") {
                        self.value = Some(self.value_of_head()?);
                        self.head.clear();
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns what was read, at the end of the header.
    pub(super) fn finish(self) -> Result<Pax, TarFault> {
        if self.head.is_empty() && self.value.is_none() { Ok(self.pax) } else { Err(bad()) }
    }

    /// Reads the head of a record, and returns the record's value before any of it is read.
    fn value_of_head(&mut self) -> Result<PaxValue, TarFault> {
        let head = &self.head[..self.head.len() - 1];
        let space = head.iter().position(|byte| *byte == b' ').ok_or_else(bad)?;
        let length = std::str::from_utf8(&head[..space]).ok().and_then(|digits| digits.parse::<u64>().ok());
        // The line feed is at least what follows the key.
        let left = length.and_then(|length| length.checked_sub(self.head.len() as u64));
        let left = left.filter(|left| *left > 0).ok_or_else(bad)?;
        let use_as = match &head[space + 1..] {
            b"path" => PaxUse::Path,
            b"size" => PaxUse::Size,
            key => {
                self.pax.sparse |= key.starts_with(b"GNU.sparse.");
                PaxUse::None
            }
        };
        if use_as != PaxUse::None && left > MAX_EXTENSION_BYTES {
            return Err(TarFault::ExtensionTooLong(left));
        }
        Ok(PaxValue { use_as, bytes: Vec::new(), left })
    }

    fn record(&mut self, PaxValue { use_as, bytes, .. }: &PaxValue) -> Result<(), TarFault> {
        match use_as {
            PaxUse::Path => self.pax.path = Some(Name::of(bytes)),
            PaxUse::Size => {
                let size = std::str::from_utf8(bytes).ok().and_then(|text| text.parse().ok());
                let size = size.filter(|size| *size <= i64::MAX as u64);
                self.pax.size = Some(size.ok_or(TarFault::Header("pax size"))?);
            }
            PaxUse::None => {}
        }
        Ok(())
    }
}

fn bad() -> TarFault {
    TarFault::Header("pax extension")
}
