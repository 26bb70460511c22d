//! Elements of EBML (RFC 8794), of which Matroska is made.

use crate::{MediaError, input::Input};

/// The head of an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ElementHead {
    /// The name, with the bits that say its length.
    pub(crate) id: u32,
    /// Length of the head.
    pub(crate) head_bytes: u64,
    /// Length of the content; `None` if it reaches to the next element that cannot be in it.
    pub(crate) bytes: Option<u64>,
}

/// The most bytes of a head.
const MAX_HEAD_BYTES: u64 = 12;

impl ElementHead {
    /// Reads the head of the next element, without passing it; `None` if its bytes have to be fetched first.
    pub(crate) fn read(input: &mut Input<'_, '_>, what: &'static str) -> Result<Option<Self>, MediaError> {
        let rest = input.file_bytes().saturating_sub(input.at());
        let Some(bytes) = input.peek(rest.clamp(2, MAX_HEAD_BYTES), what)? else { return Ok(None) };
        match Self::parse(bytes) {
            Some(head) => Ok(Some(head)),
            None => Err(input.malformed("no element of Matroska begins here")),
        }
    }

    /// Reads a head at the beginning of `bytes`.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let id_bytes = bytes.first()?.leading_zeros() as usize + 1;
        if id_bytes > 4 {
            return None;
        }
        let id = bytes.get(..id_bytes)?.iter().fold(0, |id, byte| id << 8 | u32::from(*byte));
        let (bytes, size_bytes) = length(bytes.get(id_bytes..)?)?;
        Some(Self { id, head_bytes: (id_bytes + size_bytes) as u64, bytes })
    }

    /// Returns the length of the element with its head, if it is known.
    pub(crate) fn all_bytes(&self) -> Option<u64> {
        self.head_bytes.checked_add(self.bytes?)
    }
}

/// Returns a number of variable length, and its length; its value is `None` if it has only ones, for what is not known.
pub(crate) fn length(bytes: &[u8]) -> Option<(Option<u64>, usize)> {
    let first = *bytes.first()?;
    let count = first.leading_zeros() as usize + 1;
    if count > 8 {
        return None;
    }
    let ones = u64::MAX >> (64 - 7 * count);
    let number = bytes.get(..count)?.iter().fold(0_u64, |number, byte| number << 8 | u64::from(*byte)) & ones;
    Some(((number != ones).then_some(number), count))
}

/// Returns the elements in another one, each by its name and its content; no more if one is not valid.
pub(crate) fn elements(mut bytes: &[u8]) -> impl Iterator<Item = (u32, &[u8])> {
    std::iter::from_fn(move || {
        let head = ElementHead::parse(bytes)?;
        let from = usize::try_from(head.head_bytes).ok()?;
        let to = usize::try_from(head.all_bytes()?).ok()?;
        let content = bytes.get(from..to)?;
        bytes = &bytes[to..];
        Some((head.id, content))
    })
}

/// Returns the content of the first element of a name.
pub(crate) fn element(bytes: &[u8], id: u32) -> Option<&[u8]> {
    elements(bytes).find(|(found, _)| *found == id).map(|(_, content)| content)
}

/// Returns the whole number of the first element of a name.
pub(crate) fn unsigned(bytes: &[u8], id: u32) -> Option<u64> {
    number(element(bytes, id)?)
}

/// Returns a whole number.
pub(crate) fn number(content: &[u8]) -> Option<u64> {
    (content.len() <= 8).then(|| content.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

/// Returns the number of the first element of a name that is not a whole number.
pub(crate) fn float(bytes: &[u8], id: u32) -> Option<f64> {
    match *element(bytes, id)? {
        [] => Some(0.0),
        [a, b, c, d] => Some(f32::from_be_bytes([a, b, c, d]).into()),
        [a, b, c, d, e, f, g, h] => Some(f64::from_be_bytes([a, b, c, d, e, f, g, h])),
        _ => None,
    }
}
