//! The lengths of the documents of a global batch, as numbers in a column: those of each sequence add up to its places, and what
//! is behind its last document is negative.

use super::Sequence;

impl Sequence {
    /// Returns the numbers of a sequence whose documents have these places.
    pub fn global_lengths_of(&self, documents: impl IntoIterator<Item = u32>) -> impl Iterator<Item = i32> {
        let mut left = Some(self.seq_len);
        let mut documents = documents.into_iter();
        std::iter::from_fn(move || match documents.next() {
            Some(length) => {
                left = left.map(|left| left - length);
                Some(length as i32)
            }
            None => left.take().filter(|left| *left > 0).map(|left| -(left as i32)),
        })
    }

    /// Returns the lengths of the documents of each sequence, of such numbers. What does not add up to sequences is left out.
    #[must_use]
    pub fn documents_of_global_lengths(&self, numbers: impl IntoIterator<Item = i32>) -> Vec<Vec<i32>> {
        let (mut sequences, mut lengths, mut places) = (Vec::new(), Vec::new(), 0);
        for number in numbers {
            places += u64::from(number.unsigned_abs());
            if number > 0 {
                lengths.push(number);
            }
            if places >= self.seq_len.into() {
                sequences.push(std::mem::take(&mut lengths));
                places = 0;
            }
        }
        sequences
    }
}
