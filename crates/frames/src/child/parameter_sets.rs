//! Finds parameter sets among the packets of H.264 and HEVC. A decoder keeps them when it is flushed, so that the next video would be decoded
//! with those of the one before it.

/// Returns whether a packet may have parameter sets, beside those in the extra data. `is_hevc` is for HEVC, and H.264 otherwise.
pub(super) fn has_parameter_sets(is_hevc: bool, extra_data: &[u8], mut packet: &[u8]) -> bool {
    let length = extra_data.get(if is_hevc { 21 } else { 4 }).filter(|_| extra_data.first() == Some(&1));
    // Packets of other forms begin their units with a mark, and mostly have all sets.
    let Some(length) = length else { return true };
    let length_bytes = usize::from(length & 3) + 1;
    while let Some(length) = packet.split_off(..length_bytes) {
        let length = length.iter().fold(0, |length, byte| length << 8 | usize::from(*byte));
        let Some(unit) = packet.split_off(..length) else { return true };
        let is_set = unit.first().is_some_and(|head| {
            if is_hevc { matches!(head >> 1 & 0x3f, 32..=34) } else { matches!(head & 0x1f, 7 | 8 | 13 | 15) }
        });
        if is_set {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_found_among_other_units() {
        let avc = [1, 100, 0, 31, 0xff];
        let mut hevc = [0; 22];
        (hevc[0], hevc[21]) = (1, 0x03);
        let units = |heads: &[u8]| -> Vec<u8> { heads.iter().flat_map(|head| [0, 0, 0, 2, *head, 9]).collect() };
        for (is_hevc, heads, expected) in [
            (false, &[6, 0x65][..], false),
            (false, &[0x41], false),
            (false, &[0x67, 0x68, 0x65], true),
            (false, &[6, 0x68], true),
            (true, &[39 << 1, 19 << 1], false),
            (true, &[33 << 1], true),
            (true, &[1 << 1, 34 << 1], true),
        ] {
            let extra_data = if is_hevc { &hevc[..] } else { &avc };
            assert_eq!(has_parameter_sets(is_hevc, extra_data, &units(heads)), expected, "{is_hevc} {heads:?}");
        }
        // Cut off, and of another form.
        assert!(has_parameter_sets(false, &avc, &[0, 0, 0, 9, 0x41]));
        assert!(has_parameter_sets(false, &[], &units(&[0x41])));
    }
}
