//! The hash mixer that the order, receipts and random draws are built on. It is frozen: another one would be another
//! order, other receipts and other crops.

/// 2^64 divided by the golden ratio, made odd: the step of the Weyl sequence in SplitMix64.
pub const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

/// The finaliser of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014): a bijection on u64 whose every output bit depends on
/// every input bit.
#[must_use]
pub const fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Returns the number that SplitMix64 draws in state `state`. Its next state is `state` + [`GAMMA`]. Unlike [`mix`] it
/// does not map 0 to 0.
#[must_use]
pub const fn splitmix64(state: u64) -> u64 {
    mix(state.wrapping_add(GAMMA))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_of_the_published_generator() {
        // The first numbers of the authors' C code with the seed 1234567.
        let mut state = 1_234_567_u64;
        for expected in [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423] {
            assert_eq!(splitmix64(state), expected);
            state = state.wrapping_add(GAMMA);
        }
        assert_eq!(mix(0), 0);
    }
}
