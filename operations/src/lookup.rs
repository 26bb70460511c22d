//! Looks values up in tables of 256, many at a time where the processor can. All ways give the same.
#![allow(unsafe_code)]

/// Replaces each value by what the table has for it.
pub(super) fn map_all(table: &[u8; 256], values: &mut [u8]) {
    #[cfg(target_arch = "x86_64")]
    {
        if has_vbmi() {
            // SAFETY: the processor has these instructions.
            return unsafe { x86::map_all_vbmi(table, values) };
        }
        if is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has these instructions.
            return unsafe { x86::map_all_avx2(table, values) };
        }
    }
    map_one_by_one(table, values);
}

/// Replaces each value by what its channel's table has for it.
pub(super) fn map_each(tables: &[[u8; 256]; 3], rgb: &mut [u8]) {
    #[cfg(target_arch = "x86_64")]
    if has_vbmi() {
        // SAFETY: the processor has these instructions.
        return unsafe { x86::map_each_vbmi(tables, rgb) };
    }
    map_pixels(tables, rgb);
}

/// Returns whether the processor shuffles 64 bytes at a time.
#[cfg(target_arch = "x86_64")]
pub(super) fn has_vbmi() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512vbmi")
}

fn map_one_by_one(table: &[u8; 256], values: &mut [u8]) {
    values.iter_mut().for_each(|value| *value = table[usize::from(*value)]);
}

fn map_pixels([red, green, blue]: &[[u8; 256]; 3], rgb: &mut [u8]) {
    for [r, g, b] in rgb.as_chunks_mut::<3>().0 {
        (*r, *g, *b) = (red[usize::from(*r)], green[usize::from(*g)], blue[usize::from(*b)]);
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::{map_one_by_one, map_pixels};

    /// Bytes of three vectors, whose first one is of the first channel.
    const PERIOD: usize = 3 * 64;

    #[target_feature(enable = "avx2")]
    pub(super) fn map_all_avx2(table: &[u8; 256], values: &mut [u8]) {
        // A shuffle looks 16 values up, and gives 0 for those that are negative. So 16 is taken from all values before each next
        // part of the table, and a part has the differences to the one before.
        let parts: [__m256i; 16] = std::array::from_fn(|part| {
            let before = |at: usize| if part % 8 == 0 { 0 } else { table[part * 16 + at - 16] };
            let part: [u8; 16] = std::array::from_fn(|at| table[part * 16 + at] ^ before(at));
            // SAFETY: 16 bytes are read from an array of as many.
            _mm256_broadcastsi128_si256(unsafe { _mm_loadu_si128(part.as_ptr().cast()) })
        });
        let (sixteen, half) = (_mm256_set1_epi8(16), _mm256_set1_epi8(-128));
        let (chunks, rest) = values.as_chunks_mut::<32>();
        for chunk in chunks {
            // SAFETY: 32 bytes are read from an array of as many.
            let mut low = unsafe { _mm256_loadu_si256(chunk.as_ptr().cast()) };
            let mut high = _mm256_xor_si256(low, half);
            let mut found = [_mm256_setzero_si256(); 2];
            for part in 0..8 {
                found[0] = _mm256_xor_si256(found[0], _mm256_shuffle_epi8(parts[part], low));
                found[1] = _mm256_xor_si256(found[1], _mm256_shuffle_epi8(parts[part + 8], high));
                low = _mm256_subs_epi8(low, sixteen);
                high = _mm256_subs_epi8(high, sixteen);
            }
            // SAFETY: 32 bytes are written to an array of as many.
            unsafe { _mm256_storeu_si256(chunk.as_mut_ptr().cast(), _mm256_xor_si256(found[0], found[1])) };
        }
        map_one_by_one(table, rest);
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
    pub(super) fn map_all_vbmi(table: &[u8; 256], values: &mut [u8]) {
        let parts = load(table);
        let (chunks, rest) = values.as_chunks_mut::<64>();
        for chunk in chunks {
            // SAFETY: 64 bytes are read from an array of as many.
            let found = look_up(&parts, unsafe { _mm512_loadu_si512(chunk.as_ptr().cast()) });
            // SAFETY: 64 bytes are written to an array of as many.
            unsafe { _mm512_storeu_si512(chunk.as_mut_ptr().cast(), found) };
        }
        map_one_by_one(table, rest);
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
    pub(super) fn map_each_vbmi(tables: &[[u8; 256]; 3], rgb: &mut [u8]) {
        let parts = tables.each_ref().map(|table| load(table));
        // Bit 0 of the masks is the first byte of a vector; the first vector's is of the first channel.
        let every_third = (0..64).step_by(3).fold(0_u64, |mask, at| mask | 1 << at);
        let (periods, rest) = rgb.as_chunks_mut::<PERIOD>();
        for period in periods {
            for (at, chunk) in period.as_chunks_mut::<64>().0.iter_mut().enumerate() {
                // SAFETY: 64 bytes are read from an array of as many.
                let values = unsafe { _mm512_loadu_si512(chunk.as_ptr().cast()) };
                // A vector is one byte longer than 21 pixels, so the next one begins with the next channel.
                let [first, second, third] = [at % 3, (at + 1) % 3, (at + 2) % 3];
                let found = look_up(&parts[first], values);
                let found = _mm512_mask_blend_epi8(every_third << 1, found, look_up(&parts[second], values));
                let found = _mm512_mask_blend_epi8(every_third << 2, found, look_up(&parts[third], values));
                // SAFETY: 64 bytes are written to an array of as many.
                unsafe { _mm512_storeu_si512(chunk.as_mut_ptr().cast(), found) };
            }
        }
        map_pixels(tables, rest);
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_ways_give_what_the_table_has() {
        let table = |by: u8| std::array::from_fn(|at| (at as u8).wrapping_mul(by) ^ 0x5a);
        let tables: [[u8; 256]; 3] = [table(3), table(7), table(29)];
        for pixels in [0, 1, 5, 21, 22, 63, 64, 65, 128, 1000] {
            let rgb: Vec<u8> = (0..pixels * 3).map(|at| (at * 37 + at / 11) as u8).collect();
            let with = |change: &dyn Fn(&mut [u8])| {
                let mut rgb = rgb.clone();
                change(&mut rgb);
                rgb
            };
            let (all, each) = (with(&|rgb| map_one_by_one(&tables[0], rgb)), with(&|rgb| map_pixels(&tables, rgb)));
            assert_eq!(with(&|rgb| map_all(&tables[0], rgb)), all, "{pixels}");
            assert_eq!(with(&|rgb| map_each(&tables, rgb)), each, "{pixels}");
            #[cfg(target_arch = "x86_64")]
            if is_x86_feature_detected!("avx2") {
                // SAFETY: the processor has these instructions.
                assert_eq!(with(&|rgb| unsafe { x86::map_all_avx2(&tables[0], rgb) }), all, "{pixels}");
            }
        }
    }
}
