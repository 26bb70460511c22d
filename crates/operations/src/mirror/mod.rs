//! Mirrors rows, with shuffles where the processor has them. All implementations give the same result.
#![allow(unsafe_code)]

#[cfg(target_arch = "aarch64")]
mod neon;
#[cfg(target_arch = "x86_64")]
mod x86;

use std::mem::MaybeUninit;

/// Writes the pixels of a row from the last to the first. Fills `to`, which has the same length.
pub(super) fn mirror(from: &[u8], to: &mut [MaybeUninit<u8>]) {
    assert_eq!(from.len(), to.len(), "bytes of a row");
    #[cfg(target_arch = "x86_64")]
    {
        if super::planes::has_vbmi() {
            // SAFETY: the processor has these instructions.
            return unsafe { x86::mirror_vbmi(from, to) };
        }
        if is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has these instructions.
            return unsafe { x86::mirror_avx2(from, to) };
        }
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: every processor of this kind has these instructions.
    let (from, to) = unsafe { neon::mirror(from, to) };
    one_by_one(from, to);
}

fn one_by_one(from: &[u8], to: &mut [MaybeUninit<u8>]) {
    for (to, from) in to.as_chunks_mut::<3>().0.iter_mut().zip(from.as_chunks::<3>().0.iter().rev()) {
        *to = from.map(MaybeUninit::new);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pixel_pass::write_all;

    fn mirrored(row: &[u8], mirror: impl Fn(&[u8], &mut [MaybeUninit<u8>])) -> Vec<u8> {
        let mut mirrored = Vec::new();
        write_all(&mut mirrored, row.len(), |to| mirror(row, to));
        mirrored
    }

    #[test]
    fn all_ways_give_the_same() {
        for pixels in (0..50).chain([63, 64, 65, 500]) {
            let row: Vec<u8> = (0..pixels * 3).map(|at| (at * 37 + at / 11) as u8).collect();
            let expected: Vec<u8> = row.chunks_exact(3).rev().flatten().copied().collect();
            assert_eq!(mirrored(&row, one_by_one), expected, "{pixels}");
            assert_eq!(mirrored(&row, mirror), expected, "{pixels}");
            #[cfg(target_arch = "x86_64")]
            if is_x86_feature_detected!("avx2") {
                // SAFETY: the processor has these instructions.
                assert_eq!(mirrored(&row, |from, to| unsafe { x86::mirror_avx2(from, to) }), expected, "{pixels}");
            }
        }
    }
}
