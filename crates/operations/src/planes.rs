//! Runs of pixels, with each channel by itself, so that the compiler computes many pixels at a time.

use std::mem::MaybeUninit;

use super::pixel_pass::PixelPass;

/// Pixels of a block.
pub(super) const BLOCK: usize = 256;
/// Bytes of a block.
const BYTES: usize = 3 * BLOCK;

/// A change of a block of pixels. Its method has to be `inline(always)`: a function of its own would not have the vector
/// instructions of the function that calls it.
pub(super) trait ChangeBlock {
    /// Changes the channels of a block.
    fn change(&self, planes: &mut [[u8; BLOCK]; 3]);
}

/// Changes all blocks of a picture. The last block is padded.
#[inline(always)]
pub(super) fn each_block(pass: &mut PixelPass<'_>, change: &impl ChangeBlock) {
    each_whole_block(pass, change);
    let rest = pass.count();
    if rest > 0 {
        let mut last = [0; BYTES];
        last[..rest].copy_from_slice(pass.values());
        each_whole_block(&mut PixelPass::in_place(&mut last), change);
        pass.finish(&last[..rest]);
    }
}

#[inline(always)]
fn each_whole_block(pass: &mut PixelPass<'_>, change: &impl ChangeBlock) {
    let ways = Ways::detect();
    let mut planes = [[0; BLOCK]; 3];
    while let Some(mut block) = pass.block::<BYTES>() {
        ways.split(block.values(), &mut planes);
        change.change(&mut planes);
        ways.join(&planes, block.results());
    }
}

/// Returns whether the processor shuffles 64 bytes at a time.
#[cfg(target_arch = "x86_64")]
pub(super) fn has_vbmi() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512vbmi")
}

/// How the channels of pixels are split and joined: with 64-byte vector instructions or without. Both give the same
/// result. For Arm, the compiler turns the plain loops into instructions that load and store every third byte.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ways {
    #[cfg(target_arch = "x86_64")]
    has_vbmi: bool,
}

impl Ways {
    #[inline(always)]
    pub(super) fn detect() -> Self {
        Self {
            #[cfg(target_arch = "x86_64")]
            has_vbmi: has_vbmi(),
        }
    }

    /// Takes the channels of a block.
    #[inline(always)]
    pub(super) fn split(self, block: &[u8; BYTES], planes: &mut [[u8; BLOCK]; 3]) {
        #[cfg(target_arch = "x86_64")]
        if self.has_vbmi {
            // SAFETY: the processor has these instructions.
            #[allow(unsafe_code)]
            unsafe {
                vbmi::split(block, planes);
            }
            return;
        }
        for at in 0..BLOCK {
            for channel in 0..3 {
                planes[channel][at] = block[at * 3 + channel];
            }
        }
    }

    /// Writes the channels of a block.
    #[inline(always)]
    fn join(self, planes: &[[u8; BLOCK]; 3], block: &mut [MaybeUninit<u8>; BYTES]) {
        #[cfg(target_arch = "x86_64")]
        if self.has_vbmi {
            // SAFETY: the processor has these instructions.
            #[allow(unsafe_code)]
            unsafe {
                vbmi::join(planes, block);
            }
            return;
        }
        for at in 0..BLOCK {
            for channel in 0..3 {
                block[at * 3 + channel].write(planes[channel][at]);
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
mod vbmi {
    use std::{arch::x86_64::*, mem::MaybeUninit};

    use super::{BLOCK, BYTES};

    /// Bytes of a vector.
    const VECTOR: usize = 64;

    /// For each channel, the places of its values in the first two of three vectors, and in the second and third.
    const SPLIT: [[[u8; VECTOR]; 2]; 3] = {
        let mut places = [[[0; VECTOR]; 2]; 3];
        let mut channel = 0;
        while channel < 3 {
            let mut at = 0;
            while at < VECTOR {
                let place = at * 3 + channel;
                if place < 2 * VECTOR {
                    places[channel][0][at] = place as u8;
                } else {
                    places[channel][1][at] = (place - VECTOR) as u8;
                }
                at += 1;
            }
            channel += 1;
        }
        places
    };

    /// For each of three vectors, the places of its values in the first two channels, and in the third.
    const JOIN: [[[u8; VECTOR]; 2]; 3] = {
        let mut places = [[[0; VECTOR]; 2]; 3];
        let mut at = 0;
        while at < 3 * VECTOR {
            let (pixel, channel) = (at / 3, at % 3);
            let own = &mut places[at / VECTOR];
            if channel < 2 {
                own[0][at % VECTOR] = (channel * VECTOR + pixel) as u8;
            } else {
                own[1][at % VECTOR] = pixel as u8;
            }
            at += 1;
        }
        places
    };

    /// Which values of each vector are of the third channel.
    const THIRD: [u64; 3] = {
        let mut masks = [0; 3];
        let mut at = 2;
        while at < 3 * VECTOR {
            masks[at / VECTOR] |= 1 << (at % VECTOR);
            at += 3;
        }
        masks
    };

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn load(bytes: &[u8; VECTOR]) -> __m512i {
        // SAFETY: 64 bytes are read from an array of as many.
        unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn store<Byte>(bytes: &mut [Byte; VECTOR], vector: __m512i) {
        const { assert!(size_of::<Byte>() == 1) };
        // SAFETY: 64 bytes are written to an array of as many.
        unsafe { _mm512_storeu_si512(bytes.as_mut_ptr().cast(), vector) }
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
    pub(super) fn split(block: &[u8; BYTES], planes: &mut [[u8; BLOCK]; 3]) {
        let (vectors, _) = block.as_chunks::<VECTOR>();
        for (at, three) in vectors.as_chunks::<3>().0.iter().enumerate() {
            let [a, b, c] = [load(&three[0]), load(&three[1]), load(&three[2])];
            for (channel, plane) in planes.iter_mut().enumerate() {
                let [early, late] = [load(&SPLIT[channel][0]), load(&SPLIT[channel][1])];
                // The values from the third vector on follow those of the first two.
                let first_late = (2 * VECTOR - channel).div_ceil(3);
                let found = _mm512_mask_blend_epi8(
                    u64::MAX << first_late,
                    _mm512_permutex2var_epi8(a, early, b),
                    _mm512_permutex2var_epi8(b, late, c),
                );
                store(&mut plane.as_chunks_mut::<VECTOR>().0[at], found);
            }
        }
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
    pub(super) fn join(planes: &[[u8; BLOCK]; 3], block: &mut [MaybeUninit<u8>; BYTES]) {
        let (vectors, _) = block.as_chunks_mut::<VECTOR>();
        for (at, three) in vectors.as_chunks_mut::<3>().0.iter_mut().enumerate() {
            let [r, g, b] = planes.each_ref().map(|plane| load(&plane.as_chunks::<VECTOR>().0[at]));
            for (which, vector) in three.iter_mut().enumerate() {
                let two = _mm512_permutex2var_epi8(r, load(&JOIN[which][0]), g);
                let third = _mm512_permutexvar_epi8(load(&JOIN[which][1]), b);
                store(vector, _mm512_mask_blend_epi8(THIRD[which], two, third));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pixel_pass::{write_across, write_all};

    #[test]
    fn channels_are_taken_apart_and_put_together() {
        let block: [u8; BYTES] = std::array::from_fn(|at| (at * 7 + at / 5) as u8);
        for ways in [
            Ways::detect(),
            Ways {
                #[cfg(target_arch = "x86_64")]
                has_vbmi: false,
            },
        ] {
            let mut planes = [[0; BLOCK]; 3];
            ways.split(&block, &mut planes);
            for at in 0..BLOCK {
                assert_eq!([planes[0][at], planes[1][at], planes[2][at]], block[at * 3..at * 3 + 3], "{ways:?}");
            }
            let mut joined = Vec::new();
            write_all(&mut joined, BYTES, |joined| ways.join(&planes, joined.first_chunk_mut().unwrap()));
            assert!(joined == block, "{ways:?}");
        }
    }

    struct Increment;

    impl ChangeBlock for Increment {
        fn change(&self, planes: &mut [[u8; BLOCK]; 3]) {
            planes.as_flattened_mut().iter_mut().for_each(|value| *value += 1);
        }
    }

    #[test]
    fn every_pixel_changes_once() {
        for pixels in [0, 1, 255, 256, 257, 1000] {
            let mut rgb: Vec<u8> = (0..pixels * 3).map(|at| (at % 200) as u8).collect();
            let expected: Vec<u8> = rgb.iter().map(|value| value + 1).collect();
            let mut across = Vec::new();
            write_across(&rgb, &mut across, |pass| each_block(pass, &Increment));
            assert_eq!(across, expected);
            each_block(&mut PixelPass::in_place(&mut rgb), &Increment);
            assert_eq!(rgb, expected);
        }
    }
}
