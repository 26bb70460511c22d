//! What is wrong with a packet.

/// What is wrong with a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PacketProblem {
    Ends,
    NoHeader,
    Changes,
    TooLong,
    Block,
    Residual,
    Checksum,
}

impl PacketProblem {
    /// Returns the problem in words.
    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::Ends => "the file ends within this packet",
            Self::NoHeader => "no packet begins here",
            Self::Changes => "the packet has another number of channels or of bits than the head of the file",
            Self::TooLong => "the packet has more frames than the head of the file allows",
            Self::Block => "the packet has a block of an unknown kind",
            Self::Residual => "the packet has residuals that are not valid",
            Self::Checksum => "the packet has a wrong checksum",
        }
    }
}
