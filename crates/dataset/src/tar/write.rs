//! Writes tar members as ustar, with a pax header in front of a path that does not fit. The same members give the same
//! bytes: times and owners are zero.

use super::{TAR_BLOCK_BYTES, read::padding};

/// The end of a tar: two blocks of zeros.
pub const TAR_END: [u8; 2 * TAR_BLOCK_BYTES] = [0; 2 * TAR_BLOCK_BYTES];

/// Returns the number of zero bytes that follow `bytes` of data.
#[must_use]
pub const fn padding_bytes(bytes: u64) -> u64 {
    padding(bytes)
}

/// Appends a member to `tar`, whose length is a multiple of 512 bytes. Returns the offset of the member's data in
/// `tar`.
///
/// # Panics
/// If the path is empty or has a zero byte, or the data has 8 GiB or more.
pub fn append_member(tar: &mut Vec<u8>, path: &str, data: &[u8]) -> usize {
    append_member_header(tar, path, data.len() as u64);
    let offset = tar.len();
    append_data(tar, data);
    offset
}

/// Appends the header of a member with `bytes` of data, which follow it with their [padding](padding_bytes).
///
/// # Panics
/// As for [`append_member`].
pub(crate) fn append_member_header(tar: &mut Vec<u8>, path: &str, bytes: u64) {
    assert!(!path.is_empty() && !path.contains('\0'), "path {path:?}");
    assert!(bytes < 8 << 30, "member {path:?} of {bytes} bytes");
    match split_for_ustar(path) {
        Some((prefix, name)) => append_header(tar, prefix, name, b'0', bytes),
        None => {
            let record = pax_record("path", path);
            append_header(tar, "", "././@PaxHeader", b'x', record.len() as u64);
            append_data(tar, record.as_bytes());
            // Readers that do not know pax see a truncated name, cut between characters.
            append_header(tar, "", &path[..path.floor_char_boundary(100)], b'0', bytes);
        }
    }
}

/// Returns prefix and name if `path` fits into a ustar header: it has to be ASCII, and short enough or with a slash at
/// the right place.
fn split_for_ustar(path: &str) -> Option<(&str, &str)> {
    if !path.is_ascii() {
        return None;
    }
    if path.len() <= 100 {
        return Some(("", path));
    }
    let slashes = path.match_indices('/').map(|(slash, _)| (&path[..slash], &path[slash + 1..]));
    slashes.into_iter().find(|(prefix, name)| (1..=155).contains(&prefix.len()) && (1..=100).contains(&name.len()))
}

fn pax_record(key: &str, value: &str) -> String {
    // The length includes its own digits.
    let rest = key.len() + value.len() + 3;
    let mut length = rest + 1;
    while length != rest + length.to_string().len() {
        length = rest + length.to_string().len();
    }
    format!("{length} {key}={value}\n")
}

fn append_header(tar: &mut Vec<u8>, prefix: &str, name: &str, kind: u8, bytes: u64) {
    let mut header = [0_u8; TAR_BLOCK_BYTES];
    let mut put = |at: usize, text: &[u8]| header[at..at + text.len()].copy_from_slice(text);
    put(0, name.as_bytes());
    put(100, b"0000644\0");
    put(108, b"0000000\0");
    put(116, b"0000000\0");
    put(124, format!("{bytes:011o}\0").as_bytes());
    put(136, b"00000000000\0");
    put(148, b"        ");
    put(156, &[kind]);
    put(257, b"ustar\x0000");
    put(345, prefix.as_bytes());
    let checksum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{checksum:06o}\0 ").as_bytes());
    tar.extend(header);
}

fn append_data(tar: &mut Vec<u8>, data: &[u8]) {
    tar.extend_from_slice(data);
    tar.resize(tar.len() + padding(data.len() as u64) as usize, 0);
}
