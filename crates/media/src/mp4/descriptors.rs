//! Descriptors of MPEG-4 systems (ISO/IEC 14496-1, 7.2.6), which a box `esds` holds.

/// Returns the codec and its configuration, which may be empty.
pub(crate) fn decoder_config(bytes: &[u8]) -> Option<(u8, &[u8])> {
    let (3, stream) = descriptor(bytes)? else { return None };
    let flags = *stream.get(2)?;
    let skipped = 3 + if flags & 0x80 == 0 { 0 } else { 2 } + if flags & 0x20 == 0 { 0 } else { 2 };
    let skipped = skipped + if flags & 0x40 == 0 { 0 } else { 1 + usize::from(*stream.get(skipped)?) };
    let (4, config) = descriptor(stream.get(skipped..)?)? else { return None };
    let codec = *config.first()?;
    match descriptor(config.get(13..)?) {
        Some((5, specific)) => Some((codec, specific)),
        _ => Some((codec, &[])),
    }
}

/// Returns the tag and the content of a descriptor.
fn descriptor(bytes: &[u8]) -> Option<(u8, &[u8])> {
    let (tag, mut rest) = bytes.split_first()?;
    let mut length = 0;
    for _ in 0..4 {
        let (byte, after) = rest.split_first()?;
        (length, rest) = (length << 7 | usize::from(byte & 0x7f), after);
        if byte & 0x80 == 0 {
            break;
        }
    }
    Some((*tag, rest.get(..length)?))
}
