//! Whether other pictures refer to that of a packet, where its codec says so at the beginning of the picture.

use super::VideoCodec;

/// Returns whether other pictures may refer to the picture of a packet, of what its head says; `None` if the codec does not say it
/// there, or the packet is damaged. `extra_data` is that of the track.
///
/// Where a file does not say it ([`VideoPacket::is_droppable`](crate::VideoPacket)), this is how H.264 and HEVC tell it: some bytes
/// of each packet are read.
#[must_use]
pub fn is_reference(codec: &VideoCodec, extra_data: &[u8], packet: &[u8]) -> Option<bool> {
    match codec {
        VideoCodec::H264 => {
            // Of a picture: the kinds 1 to 5. The two bits are 0 if no picture refers to it.
            let units = units(extra_data.get(4).filter(|_| extra_data.first() == Some(&1)), packet)?;
            any_unit(units, |unit| {
                let head = *unit.first()?;
                matches!(head & 0x1f, 1..=5).then_some(head & 0x60 != 0)
            })
        }
        VideoCodec::Hevc => {
            let layers = extra_data.get(21)? >> 3 & 7;
            let units = units(extra_data.get(21).filter(|_| extra_data.first() == Some(&1)), packet)?;
            any_unit(units, |unit| {
                let [kind, layer] = *unit.first_chunk()?;
                let (kind, layer) = (kind >> 1 & 0x3f, layer & 7);
                // Even kinds up to 14 are those to which no picture of the same layer refers; those of higher layers may.
                (kind < 32).then_some(!(kind <= 14 && kind % 2 == 0 && layer == layers))
            })
        }
        _ => None,
    }
}

/// Returns whether the picture of a packet can be decoded by itself, of what its first bytes say; `None` if the codec does not say it
/// there. Some programs have written WebM in which all pictures are said to be keys.
pub(crate) fn is_key_picture(codec: &VideoCodec, packet: &[u8]) -> Option<bool> {
    let first = *packet.first()?;
    match codec {
        VideoCodec::Vp8 => Some(first & 1 == 0),
        VideoCodec::Vp9 => {
            // The marker, two bits of the profile, a bit more of the last one, whether a picture is shown again, and the kind.
            let is_last_profile = first & 0x30 == 0x30;
            let kind = if is_last_profile { first << 1 } else { first } & 0x0c;
            (first >> 6 == 2).then_some(kind == 0)
        }
        _ => None,
    }
}

/// Returns whether decoding can begin at a packet that the file says is a key, so that its picture and those after it are whole. Of H.264
/// some programs also mark points from which on pictures become whole only after some more (`recovery_frame_cnt` above 0): those of a
/// stream that refreshes its pictures bit by bit.
#[must_use]
pub fn is_whole_key(codec: &VideoCodec, extra_data: &[u8], packet: &[u8]) -> bool {
    if *codec != VideoCodec::H264 {
        return true;
    }
    let Some(mut units) = units(extra_data.get(4).filter(|_| extra_data.first() == Some(&1)), packet) else {
        return true;
    };
    let recovers_at_once = units.find_map(|unit| match unit.first()? & 0x1f {
        // A picture that stands alone.
        5 => Some(true),
        6 => recovers_at_once(unit),
        _ => None,
    });
    recovers_at_once.unwrap_or(true)
}

/// Returns what a unit of messages says of the point at which pictures are whole: whether it is at once; `None` if it does not say it.
fn recovers_at_once(unit: &[u8]) -> Option<bool> {
    const RECOVERY_POINT: usize = 6;
    // Behind two zeros, a 3 was put in.
    let mut zeros = 0;
    let mut bytes = unit.get(1..)?.iter().copied().filter(|byte| {
        let is_put_in = zeros >= 2 && *byte == 3;
        zeros = if *byte == 0 { zeros + 1 } else { 0 };
        !is_put_in
    });
    loop {
        let [kind, length] = [sum_of_bytes(&mut bytes)?, sum_of_bytes(&mut bytes)?];
        if kind == RECOVERY_POINT {
            // The number of pictures until then comes first: its first bit is 1 if it is 0.
            return Some(bytes.next()? & 0x80 != 0);
        }
        if length > 0 {
            bytes.nth(length - 1)?;
        }
    }
}

/// Reads a number that is the sum of bytes of 255 and a last one.
fn sum_of_bytes(bytes: &mut impl Iterator<Item = u8>) -> Option<usize> {
    let mut sum = 0_usize;
    loop {
        let byte = bytes.next()?;
        sum += usize::from(byte);
        if byte != u8::MAX {
            return Some(sum);
        }
    }
}

/// Returns whether something holds for any unit for which it is known; `None` if it is known for none.
fn any_unit<'p>(units: impl Iterator<Item = &'p [u8]>, holds: impl Fn(&[u8]) -> Option<bool>) -> Option<bool> {
    units.filter_map(holds).reduce(|any, holds| any || holds)
}

/// Returns the units of a packet, each of which follows its length; the last two bits of a byte say how long that is.
fn units<'p>(length: Option<&u8>, mut packet: &'p [u8]) -> Option<impl Iterator<Item = &'p [u8]>> {
    let length_bytes = usize::from(length? & 3) + 1;
    Some(std::iter::from_fn(move || {
        let length = packet.split_off(..length_bytes)?.iter().fold(0, |length, byte| length << 8 | usize::from(*byte));
        packet.split_off(..length)
    }))
}
