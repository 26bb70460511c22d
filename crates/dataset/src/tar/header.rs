//! The 512-byte header of a tar member (ustar, GNU and V7).

use super::{TAR_BLOCK_BYTES, TarFault};

/// A member's header whose checksum was verified.
pub(super) struct TarHeader<'a>(&'a [u8; TAR_BLOCK_BYTES]);

/// The kinds of member that the reader distinguishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MemberKind {
    Regular,
    /// The member has no data, regardless of its size field.
    WithoutData(WithoutData),
    Sparse,
    /// The GNU long name of the next member.
    LongName,
    /// The pax records of the next member.
    Pax,
    /// Data of a kind that is skipped: global pax headers, long link targets, vendors' own kinds.
    Other,
}

/// The members that are not files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WithoutData {
    Folder,
    HardLink,
    Symlink,
    /// Devices and pipes.
    Device,
}

/// A member's path, as text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Name {
    /// The path. A byte that is not UTF-8 is escaped as in `\xe9`, the form that Python's `backslashreplace` gives.
    pub(super) path: String,
    /// Whether a byte of the path was escaped.
    pub(super) is_escaped: bool,
}

impl Name {
    /// Reads a name without guessing its encoding. Old programs on Windows and Linux wrote names in the encoding of
    /// their country, and no tar states which one that was. So bytes that are not UTF-8 are escaped: the same bytes
    /// give the same text everywhere.
    pub(super) fn of(bytes: &[u8]) -> Self {
        let mut name = Self::default();
        for chunk in bytes.utf8_chunks() {
            name.path.push_str(chunk.valid());
            for byte in chunk.invalid() {
                name.path.push_str(&format!("\\x{byte:02x}"));
                name.is_escaped = true;
            }
        }
        name
    }
}

impl<'a> TarHeader<'a> {
    /// Reads the header in `block`; returns `None` for the block of zeros that ends a tar.
    pub(super) fn read(block: &'a [u8; TAR_BLOCK_BYTES]) -> Result<Option<Self>, TarFault> {
        if block.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        let stated = octal(&block[148..156]).ok_or(TarFault::HeaderChecksum)?;
        let outside = |at: usize| !(148..156).contains(&at);
        let bytes = || block.iter().enumerate().map(|(at, byte)| if outside(at) { *byte } else { b' ' });
        let unsigned: u64 = bytes().map(u64::from).sum();
        // Some old writers summed the bytes as signed numbers.
        let signed: i64 = bytes().map(|byte| i64::from(byte.cast_signed())).sum();
        if stated != unsigned && i64::try_from(stated) != Ok(signed) {
            return Err(TarFault::HeaderChecksum);
        }
        Ok(Some(Self(block)))
    }

    pub(super) fn kind(&self) -> MemberKind {
        match self.0[156] {
            // V7 tars mark directories only by the slash at the end of the name.
            0 if self.raw_name().ends_with(b"/") => MemberKind::WithoutData(WithoutData::Folder),
            b'0' | 0 | b'7' => MemberKind::Regular,
            b'1' => MemberKind::WithoutData(WithoutData::HardLink),
            b'2' => MemberKind::WithoutData(WithoutData::Symlink),
            b'5' => MemberKind::WithoutData(WithoutData::Folder),
            b'3' | b'4' | b'6' => MemberKind::WithoutData(WithoutData::Device),
            b'S' => MemberKind::Sparse,
            b'L' => MemberKind::LongName,
            b'x' | b'X' => MemberKind::Pax,
            _ => MemberKind::Other,
        }
    }

    pub(super) fn size(&self) -> Result<u64, TarFault> {
        let field = &self.0[124..136];
        // GNU writes sizes of 8 GiB and more in base 256, marked by the top bit.
        if field[0] & 0x80 != 0 {
            let number = field[1..].iter().try_fold(u64::from(field[0] & 0x7f), |number, byte| {
                (number >> 56 == 0).then(|| number << 8 | u64::from(*byte))
            });
            return number.filter(|number| *number <= i64::MAX as u64).ok_or(TarFault::Header("size"));
        }
        octal(field).ok_or(TarFault::Header("size"))
    }

    pub(super) fn name(&self) -> Name {
        let prefix = until_zero(&self.0[345..500]);
        let mut path = Vec::new();
        // GNU headers store times where ustar has the prefix.
        if &self.0[257..263] == b"ustar\0" && !prefix.is_empty() {
            path.extend(prefix);
            path.push(b'/');
        }
        path.extend(self.raw_name());
        Name::of(&path)
    }

    fn raw_name(&self) -> &[u8] {
        until_zero(&self.0[..100])
    }
}

pub(super) fn until_zero(bytes: &[u8]) -> &[u8] {
    bytes.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// Parses an octal number padded with spaces and zero bytes; an empty field is 0.
fn octal(field: &[u8]) -> Option<u64> {
    let digits = until_zero(field).trim_ascii();
    digits.iter().try_fold(0_u64, |number, digit| {
        ((b'0'..=b'7').contains(digit) && number >> 60 == 0).then(|| number << 3 | u64::from(digit - b'0'))
    })
}
