//! Compiles a function for every processor, for those with AVX2 and for those with AVX-512, and runs what the processor
//! has. The results are the same, because no instruction is used that rounds differently. On 64-bit Arm every processor
//! has NEON, with which the compiler vectorises the version for every processor.

/// Defines a function whose loops the compiler vectorises for the processor that it runs on.
macro_rules! wide {
    ($(#[$meta:meta])* $vis:vis fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $(-> $returns:ty)? $body:block) => {
        $(#[$meta])*
        $vis fn $name($($arg: $ty),*) $(-> $returns)? {
            #[inline(always)]
            fn portable($($arg: $ty),*) $(-> $returns)? $body
            #[cfg(target_arch = "x86_64")]
            if $crate::wide::has_avx512() {
                #[target_feature(enable = "avx2,avx512f,avx512bw,avx512dq,avx512vl")]
                fn avx512($($arg: $ty),*) $(-> $returns)? {
                    portable($($arg),*)
                }
                // SAFETY: the processor has AVX2 and these parts of AVX-512.
                #[allow(unsafe_code)]
                return unsafe { avx512($($arg),*) };
            }
            #[cfg(target_arch = "x86_64")]
            if std::arch::is_x86_feature_detected!("avx2") {
                #[target_feature(enable = "avx2")]
                fn avx2($($arg: $ty),*) $(-> $returns)? {
                    portable($($arg),*)
                }
                // SAFETY: the processor has AVX2.
                #[allow(unsafe_code)]
                return unsafe { avx2($($arg),*) };
            }
            portable($($arg),*)
        }
    };
}

pub(super) use wide;

/// Returns whether the processor has the parts of AVX-512 that every server with it has.
#[cfg(target_arch = "x86_64")]
#[inline]
pub(super) fn has_avx512() -> bool {
    is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl")
}

/// Converts a value to a level from 0 to 255, with fractions cut off. Unlike `as u8`, it compiles to few vector
/// instructions.
#[inline(always)]
pub(super) fn level(value: f32) -> u8 {
    whole_level(within(value, 0.0, 255.0).trunc())
}

/// Clamps a number to `low` and `high`; NaN becomes `low`. Unlike `clamp`, it is computed for many values at a time.
#[inline(always)]
pub(super) fn within(value: f32, low: f32, high: f32) -> f32 {
    value.max(low).min(high)
}

/// Converts a whole number from 0 to 255.
#[inline(always)]
pub(super) fn whole_level(value: f32) -> u8 {
    // Beside 2^23, the lowest bits of a float are those of the whole number that was added.
    (value + 8_388_608.0).to_bits() as u8
}
