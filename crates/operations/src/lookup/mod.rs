//! Looks values up in tables of 256 entries, many at a time where the processor can. All implementations give the same
//! result.
#![allow(unsafe_code)]

#[cfg(target_arch = "aarch64")]
mod neon;
#[cfg(target_arch = "x86_64")]
mod x86;

use super::pixel_pass::PixelPass;

/// Replaces each value by its entry in the table.
pub(super) fn map_all(table: &[u8; 256], pass: &mut PixelPass<'_>) {
    map_one_by_one([table; 3], &mut pass.take_to_line());
    #[cfg(target_arch = "x86_64")]
    {
        if super::planes::has_vbmi() {
            // SAFETY: the processor has these instructions.
            return unsafe { x86::map_all_vbmi(table, pass) };
        }
        if is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has these instructions.
            return unsafe { x86::map_all_avx2(table, pass) };
        }
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: every processor of this kind has these instructions.
    unsafe {
        neon::map_all(table, pass);
    }
    map_one_by_one([table; 3], pass);
}

/// Replaces each value by its entry in its channel's table.
pub(super) fn map_each([red, green, blue]: &[[u8; 256]; 3], pass: &mut PixelPass<'_>) {
    let mut head = pass.take_to_line();
    // The line may begin with any channel.
    let tables = match head.count() % 3 {
        0 => [red, green, blue],
        1 => [green, blue, red],
        _ => [blue, red, green],
    };
    map_one_by_one([red, green, blue], &mut head);
    #[cfg(target_arch = "x86_64")]
    if super::planes::has_vbmi() {
        // SAFETY: the processor has these instructions.
        return unsafe { x86::map_each_vbmi(tables, pass) };
    }
    #[cfg(target_arch = "aarch64")]
    neon::map_each(tables, pass);
    map_one_by_one(tables, pass);
}

/// Looks up the values that are left, with the tables in turn.
fn map_one_by_one(tables: [&[u8; 256]; 3], pass: &mut PixelPass<'_>) {
    while let Some(mut pixel) = pass.block::<3>() {
        let [first, second, third] = *pixel.values();
        let found = [(0, first), (1, second), (2, third)].map(|(table, value)| tables[table][usize::from(value)]);
        pixel.write(found);
    }
    for table in tables {
        let Some(mut value) = pass.block::<1>() else { break };
        let [own] = *value.values();
        value.write([table[usize::from(own)]]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pixel_pass::write_across;

    #[test]
    fn all_ways_give_what_the_table_has() {
        let table = |by: u8| std::array::from_fn(|at| (at as u8).wrapping_mul(by) ^ 0x5a);
        let tables: [[u8; 256]; 3] = [table(3), table(7), table(29)];
        for pixels in [0, 1, 5, 21, 22, 63, 64, 65, 128, 1000] {
            let rgb: Vec<u8> = (0..pixels * 3).map(|at| (at * 37 + at / 11) as u8).collect();
            let expected = |tables: [&[u8; 256]; 3]| -> Vec<u8> {
                rgb.iter().enumerate().map(|(at, value)| tables[at % 3][usize::from(*value)]).collect()
            };
            let [red, green, blue] = &tables;
            let check = |change: &dyn Fn(&mut PixelPass<'_>), expected: &[u8]| {
                let mut changed = rgb.clone();
                let mut pass = PixelPass::in_place(&mut changed);
                change(&mut pass);
                assert_eq!(pass.count(), 0);
                assert_eq!(changed, expected, "{pixels} in place");
                write_across(&rgb, &mut changed, change);
                assert_eq!(changed, expected, "{pixels}");
            };
            check(&|pass| map_one_by_one([red, green, blue], pass), &expected([red, green, blue]));
            check(&|pass| map_each(&tables, pass), &expected([red, green, blue]));
            check(&|pass| map_all(red, pass), &expected([red; 3]));
            #[cfg(target_arch = "x86_64")]
            if is_x86_feature_detected!("avx2") {
                // SAFETY: the processor has these instructions.
                check(&|pass| unsafe { x86::map_all_avx2(red, pass) }, &expected([red; 3]));
            }
        }
    }

    #[test]
    fn each_channel_keeps_its_table_wherever_a_line_begins() {
        let tables: [[u8; 256]; 3] = [1, 2, 3].map(|by| std::array::from_fn(|at| (at as u8).wrapping_add(by)));
        let mut memory = vec![0; 1000];
        for start in 0..64 {
            memory.fill(100);
            map_each(&tables, &mut PixelPass::in_place(&mut memory[start..]));
            assert!(memory[..start].iter().all(|value| *value == 100));
            let is_right = |(at, value): (usize, &u8)| usize::from(*value) == 101 + at % 3;
            assert!(memory[start..].iter().enumerate().all(is_right), "{start}");
        }
    }
}
