//! Tests of the permutation: that it is a bijection at every size that has broken other permutations, and that
//! thousands of seeds show no pattern. The seeds are fixed, so a test that passes once always passes; the thresholds
//! are those of p = 1e-6. Each statistic is also shown to catch a permutation that is known to be bad.

use super::permutation::{Key, Purpose, permute};

/// Number of seeds per statistic.
const SEEDS: u64 = 40_000;

/// Standard deviations of a normal variable that one in a million exceeds.
const LIMIT: f64 = 4.75;

/// A permutation under test: (seed, n, x) -> place of x.
type Shuffle = fn(u64, u64, u64) -> u64;

fn order_v1(seed: u64, n: u64, x: u64) -> u64 {
    Key::new(seed, Purpose::Window).permute(n, x)
}

fn rounds<const ROUNDS: u32>(seed: u64, n: u64, x: u64) -> u64 {
    permute(Key::new(seed, Purpose::Window), n, x, ROUNDS)
}

/// A bijection that looks random at a glance: x -> x * odd + seed, modulo 2^k.
fn affine(seed: u64, n: u64, x: u64) -> u64 {
    assert!(n.is_power_of_two());
    let key = Key::new(seed, Purpose::Window).0;
    x.wrapping_mul(key | 1).wrapping_add(key >> 32) % n
}

/// Returns how far chi squared of `counts` against equal probabilities is from its mean, in standard deviations of the
/// normal variable that it is transformed to (Wilson and Hilferty, 1931).
fn deviation(counts: &[u64]) -> f64 {
    let expected = counts.iter().sum::<u64>() as f64 / counts.len() as f64;
    assert!(expected >= 10.0, "{expected} expected per cell is too little for chi squared");
    let chi: f64 = counts.iter().map(|&count| (count as f64 - expected).powi(2) / expected).sum();
    let freedom = counts.len() as f64 - 1.0;
    let spread = 2.0 / (9.0 * freedom);
    ((chi / freedom).cbrt() - (1.0 - spread)) / spread.sqrt()
}

fn count(cells: u64, draw: impl Fn(u64) -> u64) -> f64 {
    let mut counts = vec![0; cells as usize];
    for seed in 0..SEEDS {
        counts[draw(seed) as usize] += 1;
    }
    deviation(&counts)
}

/// Tests the place of `x`.
fn place(shuffle: Shuffle, n: u64, x: u64) -> f64 {
    count(n, |seed| shuffle(seed, n, x))
}

/// Tests the distance between the places of x and x + 1, modulo n; it is never 0.
fn adjacent_difference(shuffle: Shuffle, n: u64, x: u64) -> f64 {
    count(n - 1, |seed| (n + shuffle(seed, n, x + 1) - shuffle(seed, n, x)) % n - 1)
}

/// Tests the pair of the distances between the places of x and x + 1, and of x + `stride` and x + `stride` + 1: a
/// network with few rounds repeats the first in the second. There are 16 cells a side; `n` is a power of two, large
/// enough that the two are nearly independent.
fn difference_pairs(shuffle: Shuffle, n: u64, x: u64, stride: u64) -> f64 {
    let step = |seed, x| (n + shuffle(seed, n, x + 1) - shuffle(seed, n, x)) % n * 16 / n;
    count(256, |seed| step(seed, x) * 16 + step(seed, x + stride))
}

/// Tests output bit `bit` of x and of its neighbour x ^ 1, as one of four cells; `n` is a power of two, large enough
/// that the two bits are nearly independent.
fn low_bit(shuffle: Shuffle, n: u64, x: u64, bit: u32) -> f64 {
    let draw = |seed, x| shuffle(seed, n, x) >> bit & 1;
    count(4, |seed| draw(seed, x) * 2 + draw(seed, x ^ 1))
}

/// Tests which of the n! permutations a seed gives, by its Lehmer code.
fn all_permutations(shuffle: Shuffle, n: u64) -> f64 {
    count((1..=n).product(), |seed| {
        let places: Vec<u64> = (0..n).map(|x| shuffle(seed, n, x)).collect();
        (0..n as usize).fold(0, |code, i| {
            let smaller = places[i + 1..].iter().filter(|place| **place < places[i]).count() as u64;
            code * (n - i as u64) + smaller
        })
    })
}

fn assert_bijection(n: u64, seed: u64) {
    let mut seen = vec![false; n as usize];
    for x in 0..n {
        let y = order_v1(seed, n, x);
        assert!(y < n, "n {n}: {x} -> {y}");
        assert!(!std::mem::replace(&mut seen[y as usize], true), "n {n}: {y} twice");
    }
}

#[test]
fn it_is_a_bijection_at_every_size_up_to_4096() {
    for n in 1..=4096 {
        assert_bijection(n, n);
    }
}

#[test]
fn it_is_a_bijection_around_every_power_of_two() {
    for n in (0..=20).flat_map(|k| [(1_u64 << k) - 1, 1 << k, (1 << k) + 1]) {
        for seed in 0..2 {
            assert_bijection(n, seed);
        }
    }
}

#[test]
fn it_stays_inside_the_largest_domains() {
    for n in [10_000_000_000, u64::from(u32::MAX) + 2, (1 << 63) + 1, u64::MAX] {
        for x in [0, 1, n / 2, n - 1] {
            assert!(order_v1(5, n, x) < n);
            assert_ne!(order_v1(5, n, x), order_v1(6, n, x));
        }
    }
}

#[test]
fn every_place_is_equally_likely_for_the_first_the_second_and_the_last_element() {
    for n in [2, 3, 4, 5, 7, 8, 9, 16, 17, 31, 33, 64, 65, 100, 255, 257, 1000, 1024, 1025] {
        for x in [0, 1, n - 1] {
            let deviation = place(order_v1, n, x);
            assert!(deviation < LIMIT, "n {n}, element {x}: {deviation}");
        }
    }
}

#[test]
fn neighbours_are_not_kept_together_or_apart() {
    for n in [5, 8, 9, 16, 17, 64, 65, 100, 256, 257, 1000, 1024, 1025] {
        for x in [0, n / 2, n - 2] {
            let deviation = adjacent_difference(order_v1, n, x);
            assert!(deviation < LIMIT, "n {n}, element {x}: {deviation}");
        }
    }
    for n in [256, 1024, 65_536] {
        for stride in [2, 8, 16] {
            let deviation = difference_pairs(order_v1, n, 0, stride);
            assert!(deviation < LIMIT, "n {n}, stride {stride}: {deviation}");
        }
    }
}

#[test]
fn no_low_bit_can_be_predicted() {
    for k in [17, 20, 33] {
        for x in [0, 2, 1022] {
            for bit in 0..k {
                let deviation = low_bit(order_v1, 1 << k, x, bit);
                assert!(deviation < LIMIT, "n 2^{k}, element {x}, bit {bit}: {deviation}");
            }
        }
    }
}

#[test]
fn all_permutations_of_a_few_elements_are_equally_likely() {
    for n in [3, 4, 5, 6] {
        let deviation = all_permutations(order_v1, n);
        assert!(deviation < LIMIT, "n {n}: {deviation}");
    }
}

#[test]
fn neighbouring_epochs_and_lanes_are_independent() {
    let n = 40;
    for word in [1, 2, 1 << 32] {
        let key = |seed, word| Key::new(seed, Purpose::Spans).with(word);
        let deviation = count(n * n, |seed| key(seed, 0).permute(n, 0) * n + key(seed, word).permute(n, 0));
        assert!(deviation < LIMIT, "word {word}: {deviation}");
    }
}

#[test]
fn the_statistics_catch_permutations_that_are_known_to_be_bad() {
    for n in [16, 64] {
        let deviation = adjacent_difference(rounds::<4>, n, 0);
        assert!(deviation > LIMIT, "4 rounds keep neighbours related, n {n}: {deviation}");
    }
    for n in [64, 1024] {
        assert!(adjacent_difference(rounds::<2>, n, 0) > LIMIT, "2 rounds keep neighbours together, n {n}");
        assert!(difference_pairs(affine, n, 0, 2) > LIMIT, "a line has one slope, n {n}");
    }
    assert!(low_bit(affine, 1 << 20, 0, 0) > LIMIT, "the low bit of a line never mixes");
    assert!(all_permutations(rounds::<8>, 5) > LIMIT, "8 rounds are too few for 5 elements");
    assert!(place(|_, _, x| x, 16, 0) > LIMIT, "an identity puts the first element first");
}
