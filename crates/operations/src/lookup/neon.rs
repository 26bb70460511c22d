//! Lookups with NEON.

use std::arch::aarch64::*;

use super::PixelPass;
use crate::planes::{BLOCK, ChangeBlock, each_block};

/// Looks values up, 64 at a time, as long as so many are left.
#[target_feature(enable = "neon")]
pub(super) fn map_all(table: &[u8; 256], pass: &mut PixelPass<'_>) {
    let parts = load(table);
    while let Some(mut block) = pass.block::<64>() {
        for at in 0..4 {
            // SAFETY: 16 bytes are read from a part of an array, which has as many there.
            let found = look_up(&parts, unsafe { vld1q_u8(block.values().as_ptr().add(at * 16)) });
            // SAFETY: 16 bytes are written to a part of an array, which has as many there.
            unsafe { vst1q_u8(block.results().as_mut_ptr().add(at * 16).cast(), found) };
        }
    }
}

/// Looks all values up, each channel by itself: the registers have room for one table.
pub(super) fn map_each(tables: [&[u8; 256]; 3], pass: &mut PixelPass<'_>) {
    each_block(pass, &ChannelTables(tables));
}

struct ChannelTables<'t>([&'t [u8; 256]; 3]);

impl ChangeBlock for ChannelTables<'_> {
    #[inline(always)]
    fn change(&self, planes: &mut [[u8; BLOCK]; 3]) {
        for (table, plane) in self.0.into_iter().zip(planes) {
            // SAFETY: every processor of this kind has these instructions.
            unsafe { map_all(table, &mut PixelPass::in_place(plane)) };
        }
    }
}

#[inline]
#[target_feature(enable = "neon")]
fn load(table: &[u8; 256]) -> [uint8x16x4_t; 4] {
    let (parts, _) = table.as_chunks::<64>();
    // SAFETY: 64 bytes are read from an array of as many.
    std::array::from_fn(|part| unsafe { vld1q_u8_x4(parts[part].as_ptr()) })
}

/// Looks up 16 values. Each part of the table gives 0 for values of other parts.
#[inline]
#[target_feature(enable = "neon")]
fn look_up(parts: &[uint8x16x4_t; 4], values: uint8x16_t) -> uint8x16_t {
    let found = |part: usize| vqtbl4q_u8(parts[part], veorq_u8(values, vdupq_n_u8(part as u8 * 64)));
    vorrq_u8(vorrq_u8(found(0), found(1)), vorrq_u8(found(2), found(3)))
}
