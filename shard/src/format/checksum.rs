//! Checksums of whole objects, as other formats' indexes give them.

use sha2::Digest as _;

/// A checksum that another format's index gives for an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checksum {
    kind: ChecksumKind,
    /// Hexadecimal, in lower case.
    digits: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChecksumKind {
    Xxh3_64,
    Xxh3_128,
    Xxh64,
    Xxh32,
    Sha1,
    Md5,
    Sha256,
    Sha512,
}

impl ChecksumKind {
    /// The quickest first.
    const ALL: [Self; 8] =
        [Self::Xxh3_64, Self::Xxh3_128, Self::Xxh64, Self::Xxh32, Self::Sha1, Self::Md5, Self::Sha256, Self::Sha512];

    /// Returns its names, the usual one first.
    const fn names(self) -> &'static [&'static str] {
        match self {
            Self::Xxh3_64 => &["xxh3_64"],
            Self::Xxh3_128 => &["xxh3_128", "xxh128"],
            Self::Xxh64 => &["xxh64"],
            Self::Xxh32 => &["xxh32"],
            Self::Sha1 => &["sha1"],
            Self::Md5 => &["md5"],
            Self::Sha256 => &["sha256"],
            Self::Sha512 => &["sha512"],
        }
    }

    const fn digits(self) -> usize {
        match self {
            Self::Xxh32 => 8,
            Self::Xxh3_64 | Self::Xxh64 => 16,
            Self::Xxh3_128 | Self::Md5 => 32,
            Self::Sha1 => 40,
            Self::Sha256 => 64,
            Self::Sha512 => 128,
        }
    }
}

impl Checksum {
    /// Returns the checksum of this kind; `None` if this program does not compute it, or if these are not its digits.
    #[must_use]
    pub fn new(kind: &str, digits: &str) -> Option<Self> {
        let kind = ChecksumKind::ALL.into_iter().find(|known| known.names().contains(&kind))?;
        let is_hex = digits.len() == kind.digits() && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        is_hex.then(|| Self { kind, digits: digits.to_ascii_lowercase() })
    }

    /// Returns the checksum that is quickest to compute, of several that are each given as kind and digits.
    #[must_use]
    pub fn quickest<'c>(all: impl IntoIterator<Item = (&'c str, &'c str)>) -> Option<Self> {
        all.into_iter().filter_map(|(kind, digits)| Self::new(kind, digits)).min_by_key(|checksum| checksum.kind as u8)
    }

    /// Returns the checksum that has this text: its kind, a colon and its digits.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let (kind, digits) = text.split_once(':')?;
        Self::new(kind, digits)
    }

    /// Returns its kind and digits, such as `md5:d41d8cd98f00b204e9800998ecf8427e`.
    pub(crate) fn text(&self) -> String {
        format!("{}:{}", self.kind.names()[0], self.digits)
    }

    /// Returns a hasher for bytes that may have this checksum.
    #[must_use]
    pub fn hasher(&self) -> ChecksumHasher {
        ChecksumHasher { expected: self.clone(), state: HasherState::new(self.kind) }
    }
}

/// Computes the checksum of bytes that come in pieces.
pub struct ChecksumHasher {
    expected: Checksum,
    state: HasherState,
}

enum HasherState {
    Xxh3_64(Box<xxhash_rust::xxh3::Xxh3>),
    Xxh3_128(Box<xxhash_rust::xxh3::Xxh3>),
    Xxh64(xxhash_rust::xxh64::Xxh64),
    Xxh32(xxhash_rust::xxh32::Xxh32),
    Sha1(sha1::Sha1),
    Md5(md5::Md5),
    Sha256(sha2::Sha256),
    Sha512(sha2::Sha512),
}

impl HasherState {
    fn new(kind: ChecksumKind) -> Self {
        match kind {
            ChecksumKind::Xxh3_64 => Self::Xxh3_64(Box::default()),
            ChecksumKind::Xxh3_128 => Self::Xxh3_128(Box::default()),
            ChecksumKind::Xxh64 => Self::Xxh64(Default::default()),
            ChecksumKind::Xxh32 => Self::Xxh32(Default::default()),
            ChecksumKind::Sha1 => Self::Sha1(Default::default()),
            ChecksumKind::Md5 => Self::Md5(Default::default()),
            ChecksumKind::Sha256 => Self::Sha256(Default::default()),
            ChecksumKind::Sha512 => Self::Sha512(Default::default()),
        }
    }

    fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Xxh3_64(state) | Self::Xxh3_128(state) => state.update(bytes),
            Self::Xxh64(state) => state.update(bytes),
            Self::Xxh32(state) => state.update(bytes),
            Self::Sha1(state) => state.update(bytes),
            Self::Md5(state) => state.update(bytes),
            Self::Sha256(state) => state.update(bytes),
            Self::Sha512(state) => state.update(bytes),
        }
    }

    fn digits(self) -> String {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        match self {
            Self::Xxh3_64(state) => format!("{:016x}", state.digest()),
            Self::Xxh3_128(state) => format!("{:032x}", state.digest128()),
            Self::Xxh64(state) => format!("{:016x}", state.digest()),
            Self::Xxh32(state) => format!("{:08x}", state.digest()),
            Self::Sha1(state) => hex(&state.finalize()),
            Self::Md5(state) => hex(&state.finalize()),
            Self::Sha256(state) => hex(&state.finalize()),
            Self::Sha512(state) => hex(&state.finalize()),
        }
    }
}

impl ChecksumHasher {
    /// Adds the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.state.update(bytes);
    }

    /// Compares the checksum of all bytes with the expected one.
    ///
    /// # Errors
    /// A text with both, if they differ.
    pub fn finish(self) -> Result<(), String> {
        let Checksum { kind, digits } = self.expected;
        let found = Checksum { kind, digits: self.state.digits() };
        if found.digits == digits {
            return Ok(());
        }
        let expected = Checksum { kind, digits };
        Err(format!("its checksum is {}, and the dataset's own index has {}", found.text(), expected.text()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_gives_what_python_gives_for_abc() {
        for (kind, digits) in [
            ("xxh3_64", "78af5f94892f3950"),
            ("xxh3_128", "06b05ab6733a618578af5f94892f3950"),
            ("xxh128", "06b05ab6733a618578af5f94892f3950"),
            ("xxh64", "44bc2cf5ad770999"),
            ("xxh32", "32d153ff"),
            ("sha1", "a9993e364706816aba3e25717850c26c9cd0d89d"),
            ("md5", "900150983cd24fb0d6963f7d28e17f72"),
            ("sha256", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
        ] {
            let checksum = Checksum::new(kind, digits).unwrap();
            let mut hasher = checksum.hasher();
            hasher.update(b"a");
            hasher.update(b"bc");
            assert_eq!(hasher.finish(), Ok(()), "{kind}");
            assert!(checksum.hasher().finish().unwrap_err().contains(digits), "{kind}");
            assert_eq!(Checksum::read(&checksum.text()), Some(checksum));
        }
        assert_eq!(Checksum::new("md5", "900150983cd24fb0d6963f7d28e17f7"), None);
        assert_eq!(Checksum::new("whirlpool", "00"), None);
    }

    #[test]
    fn the_quickest_known_kind_is_taken() {
        let all =
            [("sha512", "0"), ("sha1", "a9993e364706816aba3e25717850c26c9cd0d89d"), ("xxh64", "44bc2cf5ad770999")];
        assert_eq!(Checksum::quickest(all).unwrap().text(), "xxh64:44bc2cf5ad770999");
    }
}
