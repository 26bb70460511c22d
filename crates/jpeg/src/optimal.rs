//! The Huffman code that makes a scan shortest (ITU-T T.81, K.2).

/// The length of the longest code.
const MAX_BITS: usize = 16;

/// A Huffman code for the symbols that occur.
#[derive(Clone, Debug)]
pub(crate) struct OptimalCode {
    /// The number of codes of each length, from 1 bit on.
    pub(crate) counts: [u8; MAX_BITS],
    /// The symbols in the order of their codes.
    pub(crate) symbols: Vec<u8>,
    /// For each symbol its code and the code's length.
    codes: [(u32, u32); 256],
}

impl OptimalCode {
    /// Builds the shortest code for symbols with these numbers of occurrences.
    pub(crate) fn new(occurrences: &[u32; 256]) -> Self {
        let mut lengths = lengths(occurrences);
        let mut counts = [0u32; 257];
        lengths.iter().for_each(|length| counts[*length] += 1);
        counts[0] = 0;
        // Shorten codes that are too long. Of two of the longest, one loses its last bit. The other becomes the sibling
        // of a shorter code, which grows by a bit.
        for length in (MAX_BITS + 1..=256).rev() {
            while counts[length] > 0 {
                let shorter = (1..length - 1).rev().find(|shorter| counts[*shorter] > 0).expect("a shorter code");
                counts[length] -= 2;
                counts[length - 1] += 1;
                counts[shorter + 1] += 2;
                counts[shorter] -= 1;
            }
        }
        // The code of ones only is not used: it belongs to the symbol that does not exist.
        if let Some(longest) = (1..=MAX_BITS).rev().find(|length| counts[*length] > 0) {
            counts[longest] -= 1;
        }
        lengths[256] = 0;
        let mut symbols: Vec<u8> = (0..=255).filter(|symbol| lengths[usize::from(*symbol)] > 0).collect();
        symbols.sort_by_key(|symbol| lengths[usize::from(*symbol)]);
        let (mut codes, mut code, mut next) = ([(0, 0); 256], 0, symbols.iter());
        for (length, count) in (1..).zip(&counts[1..=MAX_BITS]) {
            for symbol in next.by_ref().take(*count as usize) {
                codes[usize::from(*symbol)] = (code, length);
                code += 1;
            }
            code <<= 1;
        }
        let counts = std::array::from_fn(|at| counts[at + 1] as u8);
        Self { counts, symbols, codes }
    }

    /// Returns the code of a symbol that occurs, and its length.
    pub(crate) fn code(&self, symbol: u8) -> (u32, u32) {
        self.codes[usize::from(symbol)]
    }
}

/// Returns the length of each symbol's code, 0 for those that do not occur. The last is that of a symbol that does not
/// exist, whose code is the longest.
fn lengths(occurrences: &[u32; 256]) -> [usize; 257] {
    let mut weights: Vec<u64> = occurrences.iter().map(|count| u64::from(*count)).chain([1]).collect();
    let mut lengths = [0; 257];
    // The tree that each symbol belongs to, by the number of its root.
    let mut roots: [usize; 257] = std::array::from_fn(|symbol| symbol);
    loop {
        // The two lightest trees; of equal ones those with the highest numbers.
        let mut lightest: [Option<usize>; 2] = [None; 2];
        for (root, weight) in weights.iter().enumerate().filter(|(_, weight)| **weight > 0) {
            let is_lighter = |than: Option<usize>| than.is_none_or(|than| *weight <= weights[than]);
            if is_lighter(lightest[0]) {
                lightest = [Some(root), lightest[0]];
            } else if is_lighter(lightest[1]) {
                lightest[1] = Some(root);
            }
        }
        let [Some(first), Some(second)] = lightest else { break };
        weights[first] += std::mem::take(&mut weights[second]);
        for (root, length) in roots.iter_mut().zip(&mut lengths) {
            if *root == first || *root == second {
                (*root, *length) = (first, *length + 1);
            }
        }
    }
    lengths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_as_short_as_possible() {
        let mut occurrences = [0; 256];
        for (at, count) in [(0, 7), (1, 1000), (0xf0, 300), (3, 250), (0x11, 20)] {
            occurrences[at] = count;
        }
        let code = OptimalCode::new(&occurrences);
        let lengths = [1, 0xf0, 3, 0x11, 0].map(|symbol| code.code(symbol).1);
        assert_eq!(lengths, [1, 2, 3, 4, 5], "the last code of 5 bits has ones only");
        assert_eq!((code.symbols, &code.counts[..6]), (vec![1, 0xf0, 3, 0x11, 0], &[1, 1, 1, 1, 1, 0][..]));
    }

    #[test]
    fn no_code_is_longer_than_16_bits_or_has_only_ones() {
        // Weights like Fibonacci's numbers make the deepest tree.
        let mut weights = (1u32, 1u32);
        let mut deep = [0; 256];
        for count in &mut deep[..40] {
            *count = weights.0;
            weights = (weights.1, weights.0 + weights.1);
        }
        for occurrences in [deep, [1; 256], [0; 256], std::array::from_fn(|at| (at as u32).pow(3))] {
            let code = OptimalCode::new(&occurrences);
            let used = occurrences.iter().filter(|count| **count > 0).count();
            assert_eq!((code.symbols.len(), code.counts.iter().map(|n| usize::from(*n)).sum()), (used, used));
            let mut space = 0;
            for symbol in &code.symbols {
                let (bits, length) = code.code(*symbol);
                assert!((1..=16).contains(&length) && bits < (1 << length) - 1, "{bits:b} of {length} bits");
                // Each code begins where those before it end.
                assert_eq!(u64::from(bits) << (16 - length), space);
                space += 1 << (16 - length);
            }
        }
    }
}
