//! Splits an input into pieces. Pieces beyond its end are zero or empty.

/// The rest of an input.
pub(crate) struct FuzzInput<'a>(pub(crate) &'a [u8]);

impl<'a> FuzzInput<'a> {
    pub(crate) fn byte(&mut self) -> u8 {
        self.0.split_off_first().copied().unwrap_or_default()
    }

    /// Returns the next `count` bytes, or as many as there are.
    pub(crate) fn bytes(&mut self, count: usize) -> &'a [u8] {
        self.0.split_off(..count.min(self.0.len())).unwrap_or_default()
    }

    /// Returns a piece that follows its length in two bytes.
    pub(crate) fn piece(&mut self) -> &'a [u8] {
        let length = [self.byte(), self.byte()];
        self.bytes(u16::from_le_bytes(length).into())
    }

    pub(crate) fn u64(&mut self) -> u64 {
        let bytes = self.bytes(8);
        bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Appends a piece in the form that [`FuzzInput::piece`] reads.
pub(crate) fn append_piece(bytes: &mut Vec<u8>, piece: &[u8]) {
    let length = u16::try_from(piece.len()).expect("a seed is short");
    bytes.extend(length.to_le_bytes());
    bytes.extend(piece);
}
