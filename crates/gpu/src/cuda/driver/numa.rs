//! The NUMA node that a device is next to, and slabs in the memory of that node.
//!
//! On a machine with several processors, a copy from another processor's memory crosses the link between them, which all
//! its programs share.

use std::{fmt, fs, io, path::Path};

use libc::c_ulong;
use spdl_wire::slab::Slab;

/// The folder in which the system shows its devices and nodes.
const SYSFS: &str = "/sys";
/// The most nodes that Linux can be built for.
const MAX_NODES: usize = 1024;
/// The bits of a word of a set of nodes.
const WORD_BITS: usize = c_ulong::BITS as usize;

/// The number of a NUMA node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NumaNode(usize);

impl NumaNode {
    /// Returns the node of a PCI device, given as `0000:3b:00.0`. `None` if the machine has one node, or does not
    /// report it.
    pub(super) fn of_pci_device(address: &str) -> Option<Self> {
        Self::read(Path::new(SYSFS), address)
    }

    fn read(sysfs: &Path, address: &str) -> Option<Self> {
        let text = |path: &Path| fs::read_to_string(sysfs.join(path)).ok().map(|text| text.trim().to_owned());
        let nodes = text(Path::new("devices/system/node/online"))?;
        let has_several = nodes.contains(['-', ',']);
        // The value is -1 if the firmware does not report the node.
        let node = text(&Path::new("bus/pci/devices").join(address).join("numa_node"))?.parse().ok()?;
        (has_several && node < MAX_NODES).then_some(Self(node))
    }

    /// Asks the system to place those pages of a slab on this node that are not written yet, whichever process writes
    /// them.
    pub(crate) fn prefer_for(self, slab: &Slab) -> io::Result<()> {
        self.prefer(slab.as_ptr(), slab.bytes(), 0)
    }

    /// Moves the pages of a slot to this node, unless another process has mapped them too. Locked pages stay where they
    /// are.
    pub(crate) fn attract(self, slab: &Slab, slot: u32) -> io::Result<()> {
        /// The system's flag to move pages that this process alone has mapped.
        const MOVE: c_ulong = 1 << 1;
        self.prefer(slab.slot_ptr(slot), slab.slot_stride(), MOVE)
    }

    fn prefer(self, start: *const u8, bytes: usize, flags: c_ulong) -> io::Result<()> {
        /// The system's policy to take pages of other nodes where this one has none left.
        const PREFERRED: c_ulong = 1;
        let mut nodes = [0; MAX_NODES / WORD_BITS];
        nodes[self.0 / WORD_BITS] = (1 as c_ulong) << (self.0 % WORD_BITS);
        // The call reads one bit less than this argument.
        let bits = MAX_NODES + 1;
        // SAFETY: the range is mapped, and the call changes where its bytes lie, not what they are. The set of nodes has
        // as many bits as the call reads.
        let result = unsafe { libc::syscall(libc::SYS_mbind, start, bytes, PREFERRED, nodes.as_ptr(), bits, flags) };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

impl fmt::Display for NumaNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use spdl_wire::slab::Slab;

    use super::{MAX_NODES, NumaNode, WORD_BITS};

    /// Reads the node of a device on a machine with these nodes.
    fn node(online: &str, of_device: &str) -> Option<NumaNode> {
        let sysfs = tempfile::tempdir().unwrap();
        for (file, text) in
            [("devices/system/node/online", online), ("bus/pci/devices/0000:3b:00.0/numa_node", of_device)]
        {
            let path = sysfs.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, format!("{text}\n")).unwrap();
        }
        NumaNode::read(sysfs.path(), "0000:3b:00.0")
    }

    #[test]
    fn a_device_has_a_node_where_the_machine_has_several_and_tells() {
        assert_eq!(node("0-1", "1"), Some(NumaNode(1)));
        assert_eq!(node("0,8", "8"), Some(NumaNode(8)));
        assert_eq!(node("0", "0"), None, "one node");
        assert_eq!(node("0-1", "-1"), None, "the firmware does not tell");
        assert_eq!(node("0-1", "5000"), None);
        assert_eq!(NumaNode::of_pci_device("ffff:ff:1f.7"), None, "no such device");
    }

    /// Returns the policy at an address, and the nodes that it names.
    fn policy(address: *const u8) -> (i32, Vec<usize>) {
        const OF_ADDRESS: libc::c_ulong = 1 << 1;
        let (mut mode, mut nodes) = (0i32, [0 as libc::c_ulong; MAX_NODES / WORD_BITS]);
        // SAFETY: the pointers are to locals of that type, with as many bits as the call writes.
        let result = unsafe {
            let (mode, nodes) = (&raw mut mode, nodes.as_mut_ptr());
            libc::syscall(libc::SYS_get_mempolicy, mode, nodes, MAX_NODES + 1, address, OF_ADDRESS)
        };
        assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
        (mode, (0..MAX_NODES).filter(|node| nodes[node / WORD_BITS] >> (node % WORD_BITS) & 1 == 1).collect())
    }

    #[test]
    fn the_pages_of_a_slab_prefer_the_node_in_each_process_that_maps_it() {
        for slab in [Slab::shared(3, 5000).unwrap(), Slab::private(3, 5000).unwrap()] {
            let node = NumaNode(0);
            if let Err(error) = node.prefer_for(&slab) {
                assert!(error.raw_os_error() == Some(libc::ENOSYS) || error.raw_os_error() == Some(libc::EPERM));
                spdl_testkit::skipped(format_args!("this system places no memory: {error}"));
                return;
            }
            slab.try_take(1).unwrap().fill(7);
            node.attract(&slab, 1).unwrap();
            for slot in 0..3 {
                assert_eq!(policy(slab.slot_ptr(slot)), (1, vec![0]), "slot {slot}");
            }
            if let Some(fd) = slab.fd() {
                let peer = Slab::attach(fd.try_clone_to_owned().unwrap(), 3, slab.slot_stride() as u64).unwrap();
                assert_eq!(policy(peer.as_ptr()), (1, vec![0]), "the worker's mapping");
            }
            let absent = NumaNode(MAX_NODES - 1).prefer_for(&slab).unwrap_err();
            assert_eq!(absent.raw_os_error(), Some(libc::EINVAL), "a node that the machine lacks");
        }
    }
}
