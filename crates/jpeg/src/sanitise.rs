//! Rewrites a picture to follow the standard, for decoders that are stricter than libjpeg. The result has no bytes
//! between its segments, no segments that decoding does not need, and a colour model that all decoders read the same
//! way.

use crate::{
    deviation::Deviations,
    error::Error,
    markers::{ColourModel, Markers, colour_model},
    whole::ScanFacts,
};

/// A rewritten picture, and the metadata of the original.
#[derive(Clone, Debug)]
pub struct Sanitised<'b> {
    /// The rewritten picture, without the original's application segments.
    pub bytes: Vec<u8>,
    /// The body of the EXIF segment, starting at its TIFF header.
    pub exif: Option<&'b [u8]>,
    /// The XMP packet.
    pub xmp: Option<&'b [u8]>,
    /// The harmless departures of the original from the standard.
    pub deviations: Deviations,
    /// The number of coefficients that a decoder must keep in memory until it has read the whole picture, because they
    /// come in several scans; 0 if they do not.
    pub kept_coefficients: u64,
}

/// Rewrites a JPEG of any kind, without decoding its coefficients.
///
/// # Errors
/// Returns [`Error::Truncated`] when there is no end marker, unless the picture is sequential and has all of its
/// blocks: a progressive picture could lack a scan. Returns [`Error::Corrupt`] when the bytes are not a JPEG.
pub fn sanitised(bytes: &[u8]) -> Result<Sanitised<'_>, Error> {
    if !bytes.starts_with(&[0xff, 0xd8]) {
        return Err(Error::Corrupt("no start marker"));
    }
    let mut markers = Markers::new(bytes);
    let mut out = Vec::with_capacity(bytes.len() + 32);
    out.extend([0xff, 0xd8]);
    // The ids of the components in the frame header. Adobe's segment is inserted before the frame.
    let mut ids: Vec<u8> = Vec::new();
    let mut frame_at = None;
    let (mut is_progressive, mut is_sequential, mut scans, mut blocks) = (false, false, 0, 0);
    // The last scan, and for each component whether any scan had it.
    let mut facts = ScanFacts::default();
    let mut scanned: Vec<bool> = Vec::new();
    loop {
        let next = if frame_at.is_some() { markers.next_marker() } else { markers.next_segment() };
        let (marker, body) = match next {
            Err(Error::Truncated) if is_sequential && !scanned.contains(&false) && facts.is_whole() => {
                markers.without_end();
                break;
            }
            next => next?,
        };
        match marker {
            0xd9 => break,
            0xc4 | 0xdb | 0xdd | 0xcc => {
                match marker {
                    0xc4 => facts.tables.push(body),
                    0xdd => facts.restart_interval = body.iter().fold(0, |all, byte| all << 8 | u64::from(*byte)),
                    _ => {}
                }
                put(&mut out, marker, body);
            }
            0xc0..=0xcf => {
                if frame_at.is_some() {
                    return Err(Error::Corrupt("two frame headers"));
                }
                (is_progressive, is_sequential) = (matches!(marker, 0xc2 | 0xca), matches!(marker, 0xc0 | 0xc1));
                facts.frame = body;
                frame_at = Some(out.len());
                let mut body = body.to_vec();
                blocks = blocks_of(&body);
                for component in body.get_mut(6..).unwrap_or_default().as_chunks_mut::<3>().0 {
                    ids.push(component[0]);
                    component[0] = ids.len() as u8;
                }
                scanned = vec![false; ids.len()];
                put(&mut out, marker, &body);
            }
            0xda => {
                scans += 1;
                facts.scan = body;
                let mut body = body.to_vec();
                let count = body.first().map_or(0, |count| usize::from(*count));
                for selector in body.get_mut(1..1 + 2 * count).unwrap_or_default().as_chunks_mut::<2>().0 {
                    let number = ids.iter().position(|id| *id == selector[0]);
                    let number = number.ok_or(Error::Corrupt("a scan of unknown components"))?;
                    selector[0] = number as u8 + 1;
                    scanned[number] = true;
                }
                put(&mut out, marker, &body);
                facts.data = markers.pass_scan();
                out.extend(facts.data);
            }
            _ => {}
        }
    }
    let at = frame_at.ok_or(Error::Corrupt("no frame"))?;
    let transform = match colour_model(markers.colour_facts(), &ids) {
        ColourModel::Rgb | ColourModel::Cmyk => Some(0),
        ColourModel::Ycck => Some(2),
        ColourModel::Grey | ColourModel::LumaChroma => None,
    };
    if let Some(transform) = transform {
        let adobe = [0xff, 0xee, 0, 14, b'A', b'd', b'o', b'b', b'e', 0, 100, 0, 0, 0, 0, transform];
        out.splice(at..at, adobe);
    }
    out.extend([0xff, 0xd9]);
    let (exif, xmp, deviations) = (markers.exif(), markers.xmp(), markers.deviations());
    let kept_coefficients = if is_progressive || scans > 1 { blocks * 64 } else { 0 };
    Ok(Sanitised { bytes: out, exif, xmp, deviations, kept_coefficients })
}

/// Returns the number of blocks of all components, from the frame header.
fn blocks_of(frame: &[u8]) -> u64 {
    let Some(&[_, h1, h0, w1, w0, _]) = frame.first_chunk::<6>() else { return 0 };
    let size = [[w1, w0], [h1, h0]].map(|side| u64::from(u16::from_be_bytes(side)));
    let sampling = |component: &[u8; 3]| [component[1] >> 4, component[1] & 15].map(|blocks| u64::from(blocks.max(1)));
    let components = frame[6..].as_chunks::<3>().0;
    let most = components.iter().map(sampling).fold([1, 1], |a, b| [a[0].max(b[0]), a[1].max(b[1])]);
    let [columns, rows] = [0, 1].map(|axis| size[axis].div_ceil(8 * most[axis]));
    columns * rows * components.iter().map(sampling).map(|[across, down]| across * down).sum::<u64>()
}

fn put(out: &mut Vec<u8>, marker: u8, body: &[u8]) {
    out.extend([0xff, marker]);
    out.extend((body.len() as u16 + 2).to_be_bytes());
    out.extend(body);
}
