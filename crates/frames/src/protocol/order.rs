//! What the pool sends to a child.

use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use super::MessageBytes;
use crate::library::LibraryFolders;

/// Bytes before each packet in memory: its time, its length, and whether decoding begins anew.
const PACKET_HEAD_BYTES: usize = 8 + 4 + 1;

/// A message of the pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ChildOrder {
    /// Loads the library, and gives up all rights. With it comes a pipe: the child ends when its other end is closed. Answered by what was
    /// loaded.
    Load(LoadOrder),
    /// The memory in which orders lie. Not answered.
    Input(usize),
    /// The memory into which frames go. Goes on with the request that has asked for it; between requests, it is not answered.
    Output(usize),
    /// Begins a request.
    Start(StartOrder),
    /// More packets, as many as these, and whether they are the last ones.
    Packets(u32, bool),
    /// Goes on: the pool has read all frames.
    GoOn,
}

/// What a child loads, and its limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LoadOrder {
    /// The most pixels of frames.
    pub(crate) max_pixels: u64,
    /// Where the library may be.
    pub(crate) folders: LibraryFolders,
}

/// A request. In memory lie the wanted times, the extra data, and then packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StartOrder {
    /// The number of the codec.
    pub(crate) codec: u8,
    /// The most pixels of a frame.
    pub(crate) max_pixels: u64,
    /// The number of wanted frames.
    pub(crate) wanted: u32,
    /// Bytes of the extra data.
    pub(crate) extra_bytes: u32,
    /// The number of packets that lie in memory.
    pub(crate) packets: u32,
    /// Whether they are all packets.
    pub(crate) is_last: bool,
}

impl ChildOrder {
    /// Returns the bytes of the message.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(32);
        let path = |bytes: &mut Vec<u8>, path: &Path| {
            let text = path.as_os_str().as_bytes();
            bytes.extend((text.len() as u64).to_le_bytes());
            bytes.extend(text);
        };
        match self {
            Self::Load(order) => {
                bytes.push(b'L');
                bytes.extend(order.max_pixels.to_le_bytes());
                bytes.push(order.folders.only.is_some().into());
                order.folders.only.iter().chain(&order.folders.packages).for_each(|folder| path(&mut bytes, folder));
            }
            Self::Input(count) | Self::Output(count) => {
                bytes.push(if matches!(self, Self::Input(_)) { b'I' } else { b'O' });
                bytes.extend((*count as u64).to_le_bytes());
            }
            Self::Start(order) => {
                bytes.extend([b'S', order.codec]);
                bytes.extend(order.max_pixels.to_le_bytes());
                bytes.extend([order.wanted, order.extra_bytes, order.packets].map(u32::to_le_bytes).as_flattened());
                bytes.push(order.is_last.into());
            }
            Self::Packets(count, is_last) => {
                bytes.push(b'P');
                bytes.extend(count.to_le_bytes());
                bytes.push((*is_last).into());
            }
            Self::GoOn => bytes.push(b'G'),
        }
        bytes
    }

    /// Reads a message; `None` if it is none.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut bytes = MessageBytes(bytes);
        let order = match bytes.u8()? {
            b'L' => {
                let (max_pixels, has_only) = (bytes.u64()?, bytes.flag()?);
                let mut folders = Vec::new();
                while !bytes.0.is_empty() {
                    let count = bytes.count()?;
                    folders.push(PathBuf::from(OsStr::from_bytes(bytes.take(count)?)));
                }
                let packages = folders.split_off(usize::from(has_only).min(folders.len()));
                Self::Load(LoadOrder { max_pixels, folders: LibraryFolders { only: folders.pop(), packages } })
            }
            b'I' => Self::Input(bytes.count()?),
            b'O' => Self::Output(bytes.count()?),
            b'S' => Self::Start(StartOrder {
                codec: bytes.u8()?,
                max_pixels: bytes.u64()?,
                wanted: bytes.u32()?,
                extra_bytes: bytes.u32()?,
                packets: bytes.u32()?,
                is_last: bytes.flag()?,
            }),
            b'P' => Self::Packets(bytes.u32()?, bytes.flag()?),
            b'G' => Self::GoOn,
            _ => return None,
        };
        bytes.end(order)
    }
}

/// Writes what an order refers to into memory.
pub(crate) struct InputWriter<'m> {
    memory: &'m mut [u8],
    used: usize,
}

impl<'m> InputWriter<'m> {
    pub(crate) const fn new(memory: &'m mut [u8]) -> Self {
        Self { memory, used: 0 }
    }

    /// Returns the bytes that a packet takes.
    pub(crate) const fn packet_bytes(bytes: usize) -> usize {
        PACKET_HEAD_BYTES + bytes
    }

    /// Writes the wanted times and the extra data of a request. Returns whether there was room.
    pub(crate) fn start(&mut self, wanted: &[i64], extra_data: &[u8]) -> bool {
        wanted.iter().all(|pts| self.write(&pts.to_le_bytes())) && self.write(extra_data)
    }

    /// Writes a packet, if there is room. Returns whether there was.
    pub(crate) fn packet(&mut self, pts: i64, begins_anew: bool, bytes: &[u8]) -> bool {
        let Ok(count) = u32::try_from(bytes.len()) else { return false };
        if self.memory.len() - self.used < Self::packet_bytes(bytes.len()) {
            return false;
        }
        self.write(&pts.to_le_bytes())
            && self.write(&count.to_le_bytes())
            && self.write(&[begins_anew.into()])
            && self.write(bytes)
    }

    fn write(&mut self, bytes: &[u8]) -> bool {
        let Some(room) = self.memory.get_mut(self.used..self.used + bytes.len()) else { return false };
        room.copy_from_slice(bytes);
        self.used += bytes.len();
        true
    }
}

/// Reads what [`InputWriter`] has written.
pub(crate) struct InputReader<'m> {
    bytes: MessageBytes<'m>,
    total: usize,
}

impl<'m> InputReader<'m> {
    pub(crate) const fn new(memory: &'m [u8]) -> Self {
        Self { bytes: MessageBytes(memory), total: memory.len() }
    }

    /// Returns how many bytes are read.
    pub(crate) const fn place(&self) -> usize {
        self.total - self.bytes.0.len()
    }

    /// Reads the wanted times and the extra data of a request.
    pub(crate) fn start(&mut self, order: &StartOrder) -> Option<(Vec<i64>, &'m [u8])> {
        let wanted = (0..order.wanted).map(|_| self.bytes.i64()).collect::<Option<_>>()?;
        Some((wanted, self.bytes.take(order.extra_bytes as usize)?))
    }

    /// Reads a packet: its time, whether decoding begins anew, and its bytes.
    pub(crate) fn packet(&mut self) -> Option<(i64, bool, &'m [u8])> {
        let (pts, count, begins_anew) = (self.bytes.i64()?, self.bytes.u32()?, self.bytes.flag()?);
        Some((pts, begins_anew, self.bytes.take(count as usize)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_read_as_they_were_written() {
        let folders = LibraryFolders { only: Some("/one".into()), packages: vec!["/two".into(), "".into()] };
        let start = StartOrder { codec: 3, max_pixels: 1 << 40, wanted: 2, extra_bytes: 4, packets: 5, is_last: true };
        for order in [
            ChildOrder::Load(LoadOrder { max_pixels: 7, folders }),
            ChildOrder::Load(LoadOrder { max_pixels: 7, folders: LibraryFolders::default() }),
            ChildOrder::Input(1 << 33),
            ChildOrder::Output(0),
            ChildOrder::Start(start),
            ChildOrder::Packets(9, false),
            ChildOrder::GoOn,
        ] {
            let bytes = order.encode();
            assert_eq!(ChildOrder::decode(&bytes), Some(order.clone()));
            assert_eq!(ChildOrder::decode(&[&*bytes, b"x"].concat()), None, "{order:?}");
        }
        assert_eq!(ChildOrder::decode(b""), None);
    }

    #[test]
    fn packets_are_written_as_far_as_there_is_room() {
        let mut memory = vec![0; 70];
        let mut writer = InputWriter::new(&mut memory);
        assert!(writer.start(&[-5, 7], b"extra"));
        assert!(writer.packet(-5, true, b"first") && writer.packet(i64::MAX, false, b"second"));
        assert!(!writer.packet(0, false, b"third"));
        let start = StartOrder { codec: 0, max_pixels: 1, wanted: 2, extra_bytes: 5, packets: 2, is_last: false };
        let mut reader = InputReader::new(&memory);
        assert_eq!(reader.start(&start), Some((vec![-5, 7], &b"extra"[..])));
        assert_eq!(reader.packet(), Some((-5, true, &b"first"[..])));
        assert_eq!(reader.packet(), Some((i64::MAX, false, &b"second"[..])));
    }
}
