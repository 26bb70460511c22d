//! Lookups with AVX2 and with AVX-512.

use std::arch::x86_64::*;

use super::{PixelPass, map_one_by_one};

/// Bytes of three vectors, whose first one is of the first channel.
const PERIOD: usize = 3 * 64;

#[target_feature(enable = "avx2")]
pub(super) fn map_all_avx2(table: &[u8; 256], pass: &mut PixelPass<'_>) {
    // A shuffle looks up 16 values, and gives 0 for negative ones. So 16 is subtracted from all values before the next
    // part of the table, and each part has the differences from the part before.
    let parts: [__m256i; 16] = std::array::from_fn(|part| {
        let before = |at: usize| if part % 8 == 0 { 0 } else { table[part * 16 + at - 16] };
        let part: [u8; 16] = std::array::from_fn(|at| table[part * 16 + at] ^ before(at));
        // SAFETY: 16 bytes are read from an array of as many.
        _mm256_broadcastsi128_si256(unsafe { _mm_loadu_si128(part.as_ptr().cast()) })
    });
    let (sixteen, half) = (_mm256_set1_epi8(16), _mm256_set1_epi8(-128));
    while let Some(mut block) = pass.block::<32>() {
        // SAFETY: 32 bytes are read from an array of as many.
        let mut low = unsafe { _mm256_loadu_si256(block.values().as_ptr().cast()) };
        let mut high = _mm256_xor_si256(low, half);
        let mut found = [_mm256_setzero_si256(); 2];
        for part in 0..8 {
            found[0] = _mm256_xor_si256(found[0], _mm256_shuffle_epi8(parts[part], low));
            found[1] = _mm256_xor_si256(found[1], _mm256_shuffle_epi8(parts[part + 8], high));
            low = _mm256_subs_epi8(low, sixteen);
            high = _mm256_subs_epi8(high, sixteen);
        }
        // SAFETY: 32 bytes are written to an array of as many.
        unsafe { _mm256_storeu_si256(block.results().as_mut_ptr().cast(), _mm256_xor_si256(found[0], found[1])) };
    }
    map_one_by_one([table; 3], pass);
}

#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
pub(super) fn map_all_vbmi(table: &[u8; 256], pass: &mut PixelPass<'_>) {
    let parts = load(table);
    while let Some(mut block) = pass.block::<64>() {
        // SAFETY: 64 bytes are read from an array of as many.
        let found = look_up(&parts, unsafe { _mm512_loadu_si512(block.values().as_ptr().cast()) });
        // SAFETY: 64 bytes are written to an array of as many.
        unsafe { _mm512_storeu_si512(block.results().as_mut_ptr().cast(), found) };
    }
    map_one_by_one([table; 3], pass);
}

#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
pub(super) fn map_each_vbmi(tables: [&[u8; 256]; 3], pass: &mut PixelPass<'_>) {
    let parts = tables.map(|table| load(table));
    // Bit 0 of the masks is the first byte of a vector.
    let every_third = (0..64).step_by(3).fold(0_u64, |mask, at| mask | 1 << at);
    while let Some(mut period) = pass.block::<PERIOD>() {
        for at in 0..3 {
            // A vector is one byte longer than 21 pixels, so the next one begins with the next channel.
            let [first, second, third] = [at, (at + 1) % 3, (at + 2) % 3];
            // SAFETY: 64 bytes are read from a part of an array, which has as many there.
            let values = unsafe { _mm512_loadu_si512(period.values().as_ptr().add(at * 64).cast()) };
            let found = look_up(&parts[first], values);
            let found = _mm512_mask_blend_epi8(every_third << 1, found, look_up(&parts[second], values));
            let found = _mm512_mask_blend_epi8(every_third << 2, found, look_up(&parts[third], values));
            // SAFETY: 64 bytes are written to a part of an array, which has as many there.
            unsafe { _mm512_storeu_si512(period.results().as_mut_ptr().add(at * 64).cast(), found) };
        }
    }
    map_one_by_one(tables, pass);
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load(table: &[u8; 256]) -> [__m512i; 4] {
    let (parts, _) = table.as_chunks::<64>();
    // SAFETY: 64 bytes are read from an array of as many.
    std::array::from_fn(|part| unsafe { _mm512_loadu_si512(parts[part].as_ptr().cast()) })
}

/// Looks 64 values up; their highest bits choose the half of the table.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn look_up(parts: &[__m512i; 4], values: __m512i) -> __m512i {
    let low = _mm512_permutex2var_epi8(parts[0], values, parts[1]);
    let high = _mm512_permutex2var_epi8(parts[2], values, parts[3]);
    _mm512_mask_blend_epi8(_mm512_movepi8_mask(values), low, high)
}
